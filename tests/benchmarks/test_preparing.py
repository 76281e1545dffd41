"""What `benchmarks.preparing` counts."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.preparing import MIB, family, memory, write

pytestmark = pytest.mark.quick


def test_the_text_is_as_long_as_asked_for_and_has_lines_of_words(tmp_path: Path) -> None:
    write(tmp_path / "text", 300_000)
    text = (tmp_path / "text").read_text()
    assert 300_000 <= len(text) < 600_000
    assert all(len(line.split()) == 20 for line in text.splitlines())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_that_of_a_process_and_of_all_it_started() -> None:
    """A shell, and the Python that it starts, which holds 64 MiB."""
    hold = "import sys; x = bytearray(64 << 20); print(len(x), flush=True); sys.stdin.read()"
    shell = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -c '{hold}'; true"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert shell.stdout is not None and shell.stdout.readline().strip() == str(64 << 20).encode()
    each = family(shell.pid)
    assert len(each) == 2 and sum(map(memory, each)) > 64 * MIB
    shell.communicate()
    assert memory(shell.pid) == 0
