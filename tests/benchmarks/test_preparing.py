"""What `benchmarks.preparing` counts; the benchmark of shards reads what it has made, and sees the
memory of a command.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attnlab.data.vocabulary import EOS
from benchmarks import shards
from benchmarks.preparing import MIB, family, memory, write


@pytest.mark.quick
def test_the_text_is_as_long_as_asked_for_and_has_lines_of_words(tmp_path: Path) -> None:
    write(tmp_path / "text", 300_000)
    text = (tmp_path / "text").read_text()
    assert 300_000 <= len(text) < 600_000
    assert all(len(line.split()) == 20 for line in text.splitlines())


@pytest.mark.quick
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


def test_what_is_read(tmp_path: Path) -> None:
    ids = shards._shards(tmp_path, 60_000)
    assert len(ids) == 200 and 40_000 < len(ids.ids) < 80_000
    assert (ids.ids[:] == EOS).sum() == 200
    np.testing.assert_array_equal([one[-1] for one in ids[:20]], EOS)
    counted = []
    assert shards._rate(counted.append, 0.05) > 0 and counted[:3] == [0, 1, 2]


def test_text_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "KINDS", 2_000)
    shards._written(tmp_path / "a.txt", 100_000)
    text = (tmp_path / "a.txt").read_text()
    assert 100_000 <= len(text) < 3_000_000 and len(text.split("\n")[0].split()) == 20
    memory, seconds = shards._of_tree(os.getpid())
    assert memory > 10 * 2**20 and seconds > 0 and shards._own_memory() > 0
