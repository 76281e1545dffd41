"""A test that hangs ends, with its name, by the settings of pyproject.toml; its limits are shortened
here.
"""

import subprocess
import sys
from pathlib import Path

import pytest

SETTINGS = Path(__file__).parents[1] / "pyproject.toml"
WAITS = (
    "import signal, time\n\n\ndef test_waits():\n    time.sleep(60)\n\n\ndef test_after():\n   "
    " pass\n"
)
DEAF = WAITS.replace(
    "    time.sleep",
    "    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n    time.sleep",
)


def ended(folder: Path, text: str, *options: str) -> tuple[int, str]:
    """How pytest ends on a file of tests, and what it prints."""
    (folder / "test_hanging.py").write_text(text)
    limits = ["-o", "timeout=0.3", "-o", "faulthandler_timeout=1"]
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(SETTINGS), f"--rootdir={folder}"]
    command += ["-p", "no:cacheprovider", *limits, *options, str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


def test_a_test_that_waits_fails_with_its_name_and_the_others_go_on(tmp_path: Path) -> None:
    code, said = ended(tmp_path, WAITS, "-p", "no:xdist")
    assert code == 1 and "1 failed, 1 passed" in said
    assert "FAILED test_hanging.py::test_waits - Failed: Timeout (>0.3s)" in said


@pytest.mark.full
def test_one_that_hears_no_signal_ends_its_worker_which_is_named(tmp_path: Path) -> None:
    code, said = ended(tmp_path, DEAF, "-n1")
    assert code == 1 and "1 failed, 1 passed" in said
    assert "in test_waits" in said  # the stack
    assert "crashed while running 'test_hanging.py::test_waits'" in said


@pytest.mark.quick
def test_the_limits_of_this_suite(pytestconfig: pytest.Config) -> None:
    """Those of the suite itself; what has no limit would hang for ever."""
    limit = float(pytestconfig.getini("timeout"))
    last = float(pytestconfig.getini("faulthandler_timeout"))
    assert 60 <= limit < last
    assert pytestconfig.getini("timeout_method") == "signal"
    assert pytestconfig.getini("faulthandler_exit_on_timeout")
