"""Workers with trials that train nothing: each trial once whoever comes first, and what a worker
does when SLURM wants its node.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments import Search, choice
from attnlab.experiments.plan.plan import Plan
from attnlab.experiments.run import live, queue, searching, worker
from attnlab.experiments.run.jobs import Part, training
from attnlab.experiments.run.selection import freeze
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.state import look_at_all
from attnlab.experiments.run.stop import Stop
from attnlab.experiments.run.worker import Leave, Worker, allotted, work
from attnlab.records import attempts
from attnlab.records.stream import RunLock
from tests.experiments import stub

ROOT = Path(__file__).resolve().parents[3]


def hasten() -> None:
    """Trials of the stub, in this process, and no patience."""
    live.PRELOAD = ("tests.experiments.stub",)
    queue.HELD_FOR = worker.POLL = 0.05
    worker.IDLE = 1.0
    queue.Queue.work = staticmethod(stub.work)


class StubWorker(Worker):
    """A worker whose trials train nothing."""

    def __call__(self, number: int) -> None:
        hasten()
        super().__call__(number)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ((live, "PRELOAD"), (queue, "HELD_FOR"), (worker, "POLL"), (worker, "IDLE"))
    for module, name in settings:
        monkeypatch.setattr(module, name, getattr(module, name))  # put back at the end
    monkeypatch.setattr(queue.Queue, "work", staticmethod(stub.work))
    hasten()


def begun(plan: Plan, directory: Path) -> list[int]:
    """How many processes have begun to train each trial."""
    return [one.attempts for one in look_at_all(plan, directory)]


def started(directory: Path) -> bool:
    """Whether a trial has begun and is in the middle of its training."""
    return any(path.read_text() for path in directory.glob("trials/*/*/events.jsonl"))


def in_a_process(directory: Path, number: int) -> None:
    hasten()
    work(directory, [Slot(number)], Stop())


@pytest.mark.quick
def test_a_worker_trains_all_waits_for_the_choice_and_evaluates(
    tmp_path: Path, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = stub.planned(tmp_path)

    def choose() -> None:
        stub.until(lambda: all(one.state == "done" for one in look_at_all(plan, tmp_path)))
        freeze(plan, tmp_path)

    launcher = threading.Thread(target=choose)
    launcher.start()
    with RunLock(tmp_path):  # it is at work
        work(tmp_path, [Slot(1)], Stop())
    launcher.join()
    assert begun(plan, tmp_path) == [1, 1, 1, 1]
    assert len(list(tmp_path.glob("trials/*/*/results.json"))) == 4
    first = capsys.readouterr().out.splitlines()[0]
    assert plan.trials()[1].name in first  # not where worker 0 begins


@pytest.mark.parametrize("launched", [True, False])
def test_a_worker_without_work_leaves(
    launched: bool, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The choice is the launcher's to make; without one nothing is waited for, with one not for
    ever.
    """
    monkeypatch.setattr(worker, "IDLE", 0.5 if launched else 1e9)
    plan = stub.planned(tmp_path)
    with RunLock(tmp_path) if launched else contextlib.nullcontext():
        work(tmp_path, [Slot(0), Slot(1)], Stop())
    assert begun(plan, tmp_path) == [1, 1, 1, 1] and not (tmp_path / "choice.json").exists()
    assert {use["slot"] for use in stub.uses(tmp_path)} == {0, 1}


def test_a_worker_takes_its_part(tmp_path: Path, quick: None) -> None:
    plan = stub.planned(tmp_path)
    work(tmp_path, [Slot(0)], Stop(), Part(only=("gen*",), skip=("*/seed1",)))
    assert begun(plan, tmp_path) == [0, 1, 0, 0]
    words = "--only=genral: no variant, candidate or trial is called so; did you mean 'general'"
    with pytest.raises(UserError, match=words):
        work(tmp_path, [Slot(0)], Stop(), Part(only=("genral",)))


def test_workers_go_on_with_a_search_that_no_launcher_leads(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = Search({"schedule.peak": choice(1e-3, 2e-3)}, sampler="grid", trials=2)
    plan = stub.planned(tmp_path, search=search, tune=())

    def advance(directory: Path) -> bool:
        found = Plan.of_sweep(directory)
        if all(one.promoted for one in found.candidates):
            return False
        found.promote(one.id for one in plan.candidates).write(directory)
        return True

    monkeypatch.setattr(searching, "advance", advance)
    work(tmp_path, [Slot(0)], Stop())
    assert begun(plan.promote(one.id for one in plan.candidates), tmp_path) == [1, 1, 1, 1]


def test_an_evaluation_that_fails_is_not_tried_for_ever(tmp_path: Path, quick: None) -> None:
    plan = stub.planned(tmp_path)
    for trial in plan.trials():
        stub.finish(trial, tmp_path)
    freeze(plan, tmp_path)
    (tmp_path / "no finals").touch()
    work(tmp_path, [Slot(0)], Stop())
    assert not list(tmp_path.glob("trials/*/*/results.json"))


def test_workers_at_once_do_nothing_twice(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=in_a_process, args=(tmp_path, number)) for number in range(2)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
        assert one.exitcode == 0
    assert begun(plan, tmp_path) == [1] * 6


@pytest.mark.full
def test_slurm_takes_a_node_back_and_another_worker_goes_on(tmp_path: Path) -> None:
    """submitit's own machinery, without SLURM: the signal, the trial that saves, the job that is
    queued again, the end.
    """
    submitit = pytest.importorskip("submitit")
    plan = stub.planned(tmp_path, seeds=(0,))
    # it leaves after the worker has heard the signal, however busy the machine
    stub.behave(tmp_path, additive_0="linger")
    executor = submitit.AutoExecutor(tmp_path / "slurm", cluster="local")
    executor.update_parameters(timeout_min=5)
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{before}"
    try:
        job = executor.submit(StubWorker(tmp_path), 0)
    finally:
        os.environ["PYTHONPATH"] = before
    stub.until(lambda: started(tmp_path))
    time.sleep(0.3)
    stub.behave(tmp_path)
    interrupt(tmp_path)
    job.result()
    first = plan.trials()[0].workdir(tmp_path)
    events = [(record["event"], record.get("state")) for record in attempts.read(first)]
    assert events == [("start", None), ("end", "interrupted"), ("start", None), ("end", "done")]
    assert begun(plan, tmp_path) == [2, 1]


def interrupt(directory: Path) -> None:
    """What SLURM does to a job that is to leave: signals to all its processes, to the trial and the
    server it was forked from too.
    """
    trial = json.loads(next(directory.glob("trials/additive*/seed0/events.jsonl")).read_text())[
        "pid"
    ]
    server, main = parent(trial), parent(parent(trial))
    assert set(live.SHELTERED) <= blocked(server) and signal.SIGTERM not in blocked(trial)
    for pid in (server, trial):
        for number in (signal.SIGUSR2, signal.SIGTERM):
            os.kill(pid, number)
    time.sleep(0.1)
    os.kill(main, signal.SIGUSR2)


def blocked(pid: int) -> set[int]:
    """The signals that a process does not get."""
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(status.partition("SigBlk:")[2].split()[0], 16)
    return {number for number in range(1, 64) if mask >> (number - 1) & 1}


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_only_the_first_signal_counts() -> None:
    calls: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    try:
        with Leave() as leave:
            assert leave.signal is None and not leave.requeue
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert leave.signals == [signal.SIGTERM] and not leave.requeue
            signal.raise_signal(signal.SIGUSR2)
            assert leave.signals == [signal.SIGTERM] and leave.requeue and calls == []
        leave.handler(signal.SIGUSR2, None)
        signal.raise_signal(signal.SIGUSR2)
        assert calls == [signal.SIGUSR2, signal.SIGUSR2]  # as before
    finally:
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.parametrize(
    ("number", "state", "again"),
    [
        (signal.SIGUSR2, "RUNNING", True),
        # preempted, with time to save: SLURM itself queues again only what it has to kill
        (signal.SIGTERM, "RUNNING", True),
        (signal.SIGTERM, "COMPLETING", False),  # cancelled, or requeued already
        (None, "RUNNING", False),
    ],
)
def test_when_a_job_is_queued_again(
    number: int | None, state: str, again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "squeue").write_text(f'#!/bin/sh\n[ "$2" = --jobs=17 ] && echo {state}\n')
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setattr(
        worker, "work", lambda directory, *given: number is None or signal.raise_signal(number)
    )
    calls: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    try:
        Worker(tmp_path)(0)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert calls == [signal.SIGUSR2] * again


def test_what_was_begun_comes_first_and_workers_begin_apart(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    jobs = training(plan, None, tmp_path)
    for job in jobs[3:5]:
        stub.finish(job.trials[0], tmp_path, "interrupted")
    names = [job.name for job in jobs]
    order = [
        [names.index(job.name) for job in worker.in_turn(jobs, number, tmp_path)]
        for number in range(3)
    ]
    assert order == [[3, 4, 0, 1, 2, 5], [4, 3, 1, 2, 5, 0], [3, 4, 2, 5, 0, 1]]


@pytest.mark.parametrize(
    ("asked", "number", "cores"),
    [
        (None, 1, (2, 3, 5, 7)),
        ("2", 0, (2, 3)),
        ("2", 1, (5, 7)),
        ("2", 2, (2, 3)),
        ("3", 1, (2, 3, 7)),
        ("9", 0, (2, 3, 5, 7)),
    ],
)
def test_a_worker_uses_what_it_was_given(
    asked: str | None, number: int, cores: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "usable_cores", lambda: [2, 3, 5, 7])
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    if asked is not None:
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", asked)
    slot = allotted(number)
    assert slot.number == number and slot.cores == cores
    assert slot.environment == {"OMP_NUM_THREADS": str(len(cores))}
