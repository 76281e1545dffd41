"""Two processes end together, with one line: whatever happens to one of them. They do stub work
without jax. The forked process of each: what is heard of it, and that it never stays behind; forked
by an interpreter of its own, as the command does.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.commands.tiny import alone
from tests.processes.test_meeting import port

ROOT = Path(__file__).resolve().parents[2]
AFTER = "all have ended; the same command goes on from what is saved"
ERROR, PROCESS_1 = "stub.py: error:", r"process 1 of 2 \(host .*\)"


def full(*values: object) -> object:
    """A case of the full mode only."""
    return pytest.param(*values, marks=pytest.mark.full)


def pair(
    command: Sequence[str], env: Mapping[str, str], folders: Sequence[Path] = (ROOT, ROOT)
) -> list[subprocess.Popen[str]]:
    """Two processes of the same command of Python, each in its folder."""
    flags = ["--processes=2", f"--coordinator=localhost:{port()}"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return [
        subprocess.Popen(
            [sys.executable, *command, *flags, f"--process={index}"], cwd=folder, env=env, **pipes
        )
        for index, folder in enumerate(folders)
    ]


def started(work: str) -> list[subprocess.Popen[str]]:
    """Both processes of the stub."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return pair(["-m", "tests.processes.stub", work], env)


def ended(pair: list[subprocess.Popen[str]]) -> tuple[list[int], str, str]:
    """Exit codes, what the first one printed, and what both have said of errors; a process is not
    left behind, and the second prints nothing.
    """
    texts = [child.communicate(timeout=300) for child in pair]
    assert texts[1][0] == ""
    return [child.returncode for child in pair], texts[0][0], "".join(error for _, error in texts)


@pytest.mark.parametrize(
    ("work", "codes", "out", "line"),
    [
        full("adds", [0, 0], "sum of process 0\n", "a note"),
        full("diverges", [1, 1], "", ""),
        full("refuses", [2, 2], "", f"{ERROR} config.seed=-1: expected more"),
        ("refuses_there", [2, 2], "at work\n", f"{ERROR} {PROCESS_1}: no such file"),
        ("is_cut_off", [1, 1], "", f"{ERROR} {PROCESS_1} was killed by signal 9: {AFTER}"),
        full("full", [2, 1], "", f"{ERROR} No space left on device: somewhere; free .* run again"),
    ],
)
def test_one_line_and_one_end(work: str, codes: list[int], out: str, line: str) -> None:
    """The second is silent; what both find is said once; of two ends the one that explains the
    other is told.
    """
    ends, printed, errors = ended(started(work))
    assert (ends, printed) == (codes, out)
    assert re.fullmatch(line, errors.strip()), errors


@pytest.mark.parametrize(
    ("work", "reason", "last"),
    [
        ("fails_there", "ValueError: a bug", "failed with ValueError: a bug"),
        full("aborts", "F0000 the library's reason", "was aborted by a library"),
    ],
)
def test_a_failure_is_shown_with_its_reason(work: str, reason: str, last: str) -> None:
    """The whole traceback of a bug, or what a library has said, once, by the process that people
    look at.
    """
    codes, _, errors = ended(started(work))
    assert codes == [1, 1] and errors.splitlines().count(reason) == 1
    assert re.fullmatch(f"{ERROR} {PROCESS_1} {last}: {AFTER}", errors.splitlines()[-1])


@pytest.mark.parametrize("victim", [full(0), 1])
def test_one_that_is_killed_takes_the_other_along(victim: int) -> None:
    """Whichever it is, within seconds, though the other one waits for ever; also the process that
    does the work is gone.
    """
    pair = started("waits")
    assert pair[0].stdout is not None and pair[0].stdout.readline() == "at work\n"
    began = time.monotonic()
    pair[victim].kill()
    codes, _, errors = ended(pair)
    assert codes[victim] == -signal.SIGKILL and codes[1 - victim] == 1
    assert time.monotonic() - began < 10
    gone = rf"{ERROR} process {victim} of 2 \(host .*\) is gone: {AFTER}"
    assert re.fullmatch(gone, errors.strip()), errors


@pytest.mark.full
def test_a_signal_reaches_the_work_and_the_first_one_tells_when_it_has_saved() -> None:
    pair = started("saves")
    assert pair[0].stdout is not None and pair[0].stdout.readline() == "at work\n"
    pair[0].terminate()
    assert ended(pair) == ([143, 143], "saved\n", "")


PROGRAM = """
import os, signal, sys, time
from multiprocessing.connection import wait
from attnlab.processes.supervision import Worker

def heard(worker, seconds=20):
    while wait(worker.sources, seconds):
        if end := worker.hear():
            return end

class Odd(Exception):
    def __init__(self, one, two): super().__init__(one)

def odd(): raise Odd("a", "b")
def leaves(): os._exit(0)
def stops(): sys.exit("why")
"""


def test_every_end_has_its_cause() -> None:
    """Also an exception that cannot be sent, an exit that nobody asked for, and a signal."""
    program = """
for work in (lambda: 3, odd, leaves, stops, lambda: os.kill(os.getpid(), signal.SIGTERM)):
    worker = Worker(work, True)
    end = heard(worker)
    print(end.cause, end.code, end.text, end.error, end.details.count("Traceback"))
    worker.stop()
"""
    assert alone(PROGRAM + program, cwd=ROOT, timeout=60).splitlines() == [
        "done 3  None 0",
        "failure 1 failed with Odd: a None 1",
        "abort 1 ended with exit code 0 None 0",
        "done 1  None 0",
        "killed 143 was killed by signal 15 None 0",
    ]


def test_it_stays_until_it_is_stopped_and_goes_with_its_parent() -> None:
    """One that does not speak waits when it is done; a parent that is killed takes it along."""
    program = """
worker = Worker(lambda: 0, False)
print(heard(worker, 0.3) is None)
worker.stop()
print(heard(worker, 5).cause, flush=True)
middle = os.fork()
if middle == 0:
    worker = Worker(lambda: time.sleep(600) or 0, True)
    print("begun", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
os.waitpid(middle, 0)
"""
    # and all that hold its stdout are gone, or this would wait
    assert alone(PROGRAM + program, cwd=ROOT, timeout=60).split() == ["True", "killed", "begun"]
