"""One process of a job, in the hands of its launcher; how a worker deals with it is in
test_worker.py. Signals to a launcher are counted.
"""

import os
import signal
from pathlib import Path

import pytest

from attnlab.experiments.run import live
from attnlab.experiments.run.jobs import Job
from attnlab.experiments.run.live import ORPHANED, Live, Stop, died
from attnlab.experiments.run.slots import Slot
from attnlab.records.attempts import read
from tests.experiments import stub


@pytest.fixture(autouse=True)
def quick_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PRELOAD", ("tests.experiments.stub",))


def begun(directory: Path, ending: str) -> Live:
    """The process of a trial that is in the middle of its work."""
    plan = stub.planned(directory)
    stub.behave(directory, additive_0=ending)
    trial = plan.trials()[0]
    started = Live(stub.perform, directory, Job("train", (trial,)), Slot(0))
    stub.until((trial.workdir(directory) / "steps").exists)
    return started


def test_a_process_that_leaves_when_asked(tmp_path: Path) -> None:
    process = begun(tmp_path, "wait")
    process.before = 100.0
    assert process.exit_code() is None and not process.hurry() and 100 < process.seconds < 200
    process.ask()
    stub.until(lambda: process.exit_code() is not None)
    assert process.exit_code() == 128 + signal.SIGTERM
    assert not process.out_of_memory(-signal.SIGKILL)


def test_the_time_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer for one that compiles, and half as long at least after that; half an hour at most, and
    on SLURM no longer at all.
    """
    now, on_slurm = [0.0], live.WorkOptions(grace=20.0, compiling=0.0)
    monkeypatch.setattr(live.time, "monotonic", lambda: now[0])
    cases = [(live.DEFAULTS, *case) for case in ((0, 60), (29, 60), (50, 90), (1e9, 1860))]
    for options, compiles_until, end in (*cases, (on_slurm, 1e9, 20)):
        now[0] = 0.0
        leaving = live.Leaving(options)
        while not leaving.over(now[0] <= compiles_until):
            now[0] += 1.0
        assert now[0] == leaving.seconds == end


@pytest.mark.parametrize("system", ["Linux", pytest.param("without pidfd", marks=pytest.mark.full)])
def test_the_process_of_a_server_that_was_killed_is_still_held(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if system != "Linux":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    process = begun(tmp_path, "wait")
    trial = read(process.job.trials[0].workdir(tmp_path))[0]["pid"]
    stat = Path(f"/proc/{trial}/stat").read_text()
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
    stub.until(lambda: process._process.exitcode == ORPHANED)
    assert process.exit_code() is None
    process.ask()
    stub.until(lambda: process.exit_code() is not None)
    assert process.exit_code() == ORPHANED
    assert read(process.job.trials[0].workdir(tmp_path))[-1]["message"] == "signal 15"
    job = Job("train", (stub.planned(tmp_path).trials()[1],))
    other = Live(stub.perform, tmp_path, job, Slot(0))
    stub.until(lambda: other.exit_code() == 0)


def test_what_may_have_been_for_lack_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A counter before and after, an exit code, and whether it may."""
    process = type("Process", (), {"pid": os.getpid(), "exitcode": None})
    monkeypatch.setattr(live, "start", lambda *given, **how: process)
    job = Job("train", (stub.planned(tmp_path).trials()[0],))
    known = ((3, 3, -9, False), (3, 4, -9, True), (3, 4, -15, False), (3, 4, 1, False))
    for before, after, code, perhaps in (*known, (None, None, -9, True), (3, None, -9, True)):
        monkeypatch.setattr(live, "oom_kills", [after, before].pop)
        assert Live(stub.perform, tmp_path, job, Slot(0)).out_of_memory(code) == perhaps


def test_what_is_said_of_a_death() -> None:
    assert [died(code) for code in (-9, 3, ORPHANED)] == [
        "was killed by SIGKILL",
        "ended without a word (exit code 3)",
        "ended, and nobody knows how: its server was gone",
    ]


def test_counters_of_kills_are_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / name for name in ("memory.events", "memory.oom_control", "vmstat")]
    monkeypatch.setattr(live, "OOM_COUNTERS", paths)
    assert live.oom_kills() is None
    paths[0].write_text("low 0\nhigh 0\nmax 4\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert live.oom_kills() == 2
    paths[1].write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    paths[2].write_text("nr_free_pages 17\noom_kill soon\n")  # of a system that answers otherwise
    assert live.oom_kills() == 7


@pytest.mark.quick
def test_signals_are_remembered_in_order_and_handlers_come_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        # a shell's background job starts with SIGINT ignored
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
        with Stop() as stop:
            assert stop.signal is None
            for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                signal.raise_signal(number)
            assert stop.signals == [signal.SIGTERM, signal.SIGINT] and stop.signal == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
