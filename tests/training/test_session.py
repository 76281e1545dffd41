"""The first signal is remembered and the second acts: a run that gets SIGTERM saves, says so and goes
on later as if nothing had been.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attnlab.commands import main
from attnlab.records import attempts
from attnlab.records.stream import read_records
from attnlab.training import session as session_module
from attnlab.training.session import Interrupt
from tests.training.kill_resume import STEPS, command, differences

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


Handled = Callable[..., list[int]]


@pytest.fixture
def handled() -> Iterator[Handled]:
    """`handled(signal)`: the list of what a handler of the caller's has heard of it; or another
    handler. The handlers of before are put back.
    """
    before: dict[int, Any] = {}
    heard: list[int] = []

    def handle(number: int, handler: Any = lambda signal, frame: heard.append(signal)) -> list[int]:
        before[number] = signal.signal(number, handler)
        return heard

    yield handle
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.quick
@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_remembered_and_the_second_acts(
    number: int, handled: Handled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "REPEAT", 0.0)
    heard = handled(number)
    handlers = [signal.getsignal(signal_) for signal_ in SIGNALS]
    with Interrupt() as interrupt:
        assert interrupt.signal is None
        signal.raise_signal(number)
        assert interrupt.signal == number and heard == []
        signal.raise_signal(number)
        assert heard == [number]
    assert [signal.getsignal(signal_) for signal_ in SIGNALS] == handlers
    with Interrupt() as interrupt, pytest.raises(ZeroDivisionError):
        raise ZeroDivisionError
    assert interrupt.signal is None
    assert [signal.getsignal(signal_) for signal_ in SIGNALS] == handlers


def test_a_signal_that_comes_twice_at_once_is_one(
    handled: Handled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler signals every process of a job, and the launcher among them passes it on."""
    now = [100.0]
    monkeypatch.setattr(session_module.time, "monotonic", lambda: now[0])
    heard = handled(signal.SIGTERM)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGTERM)
        for later, acts in ((0.9, []), (0.2, [signal.SIGTERM])):
            now[0] += later
            signal.raise_signal(signal.SIGTERM)
            assert interrupt.signal == signal.SIGTERM and heard == acts


def test_a_run_under_nohup_goes_on_without_its_terminal(handled: Handled) -> None:
    handled(signal.SIGHUP, signal.SIG_IGN)
    with Interrupt() as interrupt:
        signal.raise_signal(signal.SIGHUP)
        assert interrupt.signal is None


def test_second_ctrl_c_is_the_usual_one(handled: Handled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "REPEAT", 0.0)
    # a shell's background job starts with SIGINT ignored
    handled(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt), Interrupt():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.full
def test_sigterm_to_a_real_run_saves_and_the_same_command_finishes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 143, status "interrupted", a checkpoint of that very step; after the resume all
    equals an undisturbed run.
    """
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    launch = [sys.executable, str(ROOT / "launch.py"), *command("lstm_lm", "mesh", 1, cut)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    child = subprocess.Popen(launch, env={**os.environ, "PYTHONPATH": ""}, **pipes)
    deadline = time.monotonic() + 300
    while not read_records(cut / "metrics.jsonl") and child.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    child.send_signal(signal.SIGTERM)
    out, err = child.communicate(timeout=300)
    assert child.returncode == 143, err
    state, step, message = attempts.last_word(attempts.read(cut))
    assert state == "interrupted" and "signal 15" in message
    assert 0 < step < STEPS and f"interrupted at step {step}: saved in {cut}" in out
    assert (cut / "checkpoints" / str(step)).is_dir() and not (cut / "results.json").exists()

    assert main(command("lstm_lm", "mesh", 1, cut)) == 0
    assert attempts.last_word(attempts.read(cut))[0] == "done" and (cut / "results.json").exists()
    assert main(command("lstm_lm", "mesh", 1, whole)) == 0
    assert differences(whole, cut) == []
    capsys.readouterr()
