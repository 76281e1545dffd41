"""Workers with trials that train nothing: slots, deaths, failures, signals, trials that somebody else
holds; and `work`, which takes what is left of a sweep.
"""

import contextlib
import itertools
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments import Search, choice
from attnlab.experiments.plan import Plan
from attnlab.experiments.run import Stop, WorkOptions, jobs, live, look_at_all, searching, worker
from attnlab.experiments.run.jobs import Due, Part
from attnlab.experiments.run.selection import freeze
from attnlab.experiments.run.slots import Slot, share
from attnlab.experiments.run.worker import Worker, work
from attnlab.records import attempts, locks
from attnlab.records.attempts import Attempt, read
from attnlab.records.locks import RunLock
from tests.experiments import stub
from tests.experiments.kill_sweep import doubled, kill, torn
from tests.refusals import check_refused


@pytest.fixture(autouse=True)
def quick_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub needs no jax, so the server that forks it need not import it; the worker looks often
    at what runs and at what others hold.
    """
    for name, value in {**stub.HASTE, "LOOK": 0.1}.items():
        monkeypatch.setattr(worker, name, value)
    monkeypatch.setattr(Worker, "perform", staticmethod(stub.perform))
    monkeypatch.setattr(live, "PRELOAD", ("tests.experiments.stub",))
    monkeypatch.setattr(live, "oom_kills", lambda: 0)  # of whatever else runs on this machine


def run(
    plan: Plan,
    directory: Path,
    slots: Sequence[Slot] = (Slot(0), Slot(1)),
    stop: Stop | None = None,
    due: Due | None = None,
    stack: bool = False,
    **options: Any,
) -> stub.Board:
    """Run all that is left with the stub; the board has the lines of what failed at its end."""
    board, options_ = stub.Board(), WorkOptions(**options)
    made = Worker(directory, slots, board, stop or Stop(), options_, stack)
    left = lambda: jobs.trainings(plan, None, directory, options_.part)
    board.lines += made.run(due or left)
    return board


def states(plan: Plan, directory: Path) -> dict[str, str]:
    seen = look_at_all(plan, directory)
    return {f"{one.trial.candidate.variant}_{one.trial.seed}": one.state for one in seen}


@pytest.mark.quick
def test_no_two_live_trials_share_a_slot(tmp_path: Path) -> None:
    """Each in its slot with its cores and GPU, in a process group of its own; slots are taken again
    and again.
    """
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    cores = sorted(os.sched_getaffinity(0))
    run(plan, tmp_path, share(2, cores, ["7", "9"]))
    uses = stub.uses(tmp_path)
    assert len(uses) == 6 and {use["slot"] for use in uses} == {0, 1}
    for one, other in itertools.combinations(uses, 2):
        if one["slot"] == other["slot"]:
            assert one["end"] <= other["begin"] or other["end"] <= one["begin"]
            assert (one["gpu"], one["cores"]) == (other["gpu"], other["cores"])
        else:
            assert one["gpu"] != other["gpu"]
            assert len(cores) == 1 or not set(one["cores"]) & set(other["cores"])
    assert all(use["group"] == use["pid"] for use in uses)
    assert set(states(plan, tmp_path).values()) == {"done"}
    starts = [read(trial.workdir(tmp_path))[0] for trial in plan.trials()]
    assert len(starts) == 6
    assert {start["devices"]["CUDA_VISIBLE_DEVICES"] for start in starts} == {"7", "9"}


def test_failures_and_deaths_do_not_stop_the_rest(tmp_path: Path) -> None:
    """A failed and a diverged trial end so at once; one that is killed gets two further attempts,
    then is a failed one too.
    """
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    endings = {"additive_0": "fail", "general_0": "diverge", "additive_1": "die"}
    stub.behave(tmp_path, **endings, general_1="die once", additive_2="mute")
    board = run(plan, tmp_path)
    ends = ["failed", "diverged", "failed", "done", "failed", "done"]
    assert [*states(plan, tmp_path).values()] == ends
    seen = look_at_all(plan, tmp_path)
    found = {one.trial.seed: one for one in seen if one.trial.candidate.variant == "additive"}
    assert found[0].attempts == 1 and found[0].message == "ValueError: no good"
    assert found[1].attempts == 3
    assert found[1].message == "its process was killed by SIGKILL, 3 times"
    assert found[2].attempts == 3
    assert "ended without a word (exit code 3), 3 times" in found[2].message
    assert sum("trying again" in line for line in board.lines) == 5
    kept = [path.read_bytes() for path in sorted(tmp_path.rglob("events.jsonl"))]
    assert run(plan, tmp_path).lines == []  # failed and done ones stay as they are
    assert kept == [path.read_bytes() for path in sorted(tmp_path.rglob("events.jsonl"))]


@pytest.mark.parametrize(
    ("ending", "words"),
    [("changed", "^mine.py was edited$"), ("unlocked", "^the lock of .*/seed0 does not hold bet")],
)
def test_what_forbids_to_go_on_fails_no_trial(ending: str, words: str, tmp_path: Path) -> None:
    """Changed code, locks that do not hold: what runs comes to its end, nothing more is begun, and
    one line says why.
    """
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    stub.behave(tmp_path, additive_0=ending)
    check_refused(words, run, plan, tmp_path)
    seen = states(plan, tmp_path)
    assert (seen["additive_0"], seen["general_0"]) == ("interrupted", "done")
    assert [*seen.values()].count("pending") >= 2
    stub.behave(tmp_path)
    run(plan, tmp_path)
    assert {*states(plan, tmp_path).values()} == {"done"}


def test_a_trial_held_by_somebody_else_is_waited_for(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    lock = RunLock(plan.trials()[0].workdir(tmp_path))

    def release() -> None:
        """Once all others are done."""
        stub.until(lambda: count("done", plan, tmp_path) >= 3)
        lock.release()

    threading.Thread(target=release).start()
    board = run(plan, tmp_path)
    assert set(states(plan, tmp_path).values()) == {"done"} and len(stub.uses(tmp_path)) == 4
    name, where = plan.trials()[0].name, rf"\(pid {os.getpid()} on .+ since 20.+\)"
    assert re.fullmatch(f"{name}: another worker has it {where}; waiting for it", board.lines[0])
    assert board.lines[-1] == f"ended {name}"
    assert sum("another worker" in line for line in board.lines) == 1


def count(state: str, plan: Plan, directory: Path) -> int:
    """How many trials are in that state."""
    return [*states(plan, directory).values()].count(state)


def stopped_by(
    send: Callable[[int], None], numbers: list[int], plan: Plan, directory: Path
) -> None:
    """Sends signals once two trials are running; the second one 0.1 s later."""
    stub.until(lambda: count("running", plan, directory) >= 2)
    for number in numbers:
        time.sleep(0.1)
        send(number)


@contextlib.contextmanager
def signalled(numbers: list[int], plan: Plan, directory: Path) -> Iterator[None]:
    """This process gets these signals once two trials are running."""
    send = lambda number: os.kill(os.getpid(), number)
    thread = threading.Thread(target=stopped_by, args=(send, numbers, plan, directory))
    thread.start()
    yield
    thread.join()


FULL = pytest.mark.full
SIGNALS = [signal.SIGINT, pytest.param(signal.SIGTERM, marks=FULL)]
SIGNALS.append(pytest.param(signal.SIGHUP, marks=FULL))


@pytest.fixture(params=SIGNALS)
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal that is not ignored, as some are for whoever runs the tests under nohup: `Stop`
    leaves those alone.
    """
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_a_signal_is_passed_on_and_nothing_new_begins(number: int, tmp_path: Path) -> None:
    """The trials save and say so; the next run goes on with them."""
    plan = stub.planned(tmp_path)
    stub.behave(tmp_path, additive_0="wait", general_0="wait")
    with Stop() as stop:
        with signalled([number], plan, tmp_path):
            run(plan, tmp_path, stop=stop)
        assert stop.signal == number
    assert [*states(plan, tmp_path).values()] == [*["interrupted"] * 2, *["pending"] * 2]
    assert read(plan.trials()[0].workdir(tmp_path))[-1]["message"] == "signal 15"
    stub.behave(tmp_path)
    run(plan, tmp_path)
    assert set(states(plan, tmp_path).values()) == {"done"}


def test_a_second_signal_kills(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    stub.behave(tmp_path, additive_0="deaf", general_0="deaf")
    with Stop() as stop, signalled([signal.SIGTERM, signal.SIGTERM], plan, tmp_path):
        began = time.monotonic()
        run(plan, tmp_path, stop=stop)
    assert time.monotonic() - began < 50 and "running" not in states(plan, tmp_path).values()


def test_a_process_that_does_not_leave_is_killed_unless_it_compiles(tmp_path: Path) -> None:
    """One signal is enough: a hung trial holds neither its slot nor the launcher for ever. One that
    compiles leaves after that.
    """
    plan = stub.planned(tmp_path)
    stub.behave(tmp_path, additive_0="deaf", general_0="compile")
    with Stop() as stop, signalled([signal.SIGTERM], plan, tmp_path):
        began = time.monotonic()
        board = run(plan, tmp_path, stop=stop, grace=2.0)
    assert time.monotonic() - began < 50
    assert count("interrupted", plan, tmp_path) == 2
    deaf, compiling = plan.trials()[:2]
    assert board.lines.count(f"{deaf.name}: has not left within 2 s of being asked; killed") == 1
    words = f"{compiling.name}: compiles, which cannot be interrupted; it leaves after that"
    assert board.lines.count(words) == 1
    assert read(compiling.workdir(tmp_path))[-1]["message"] == "signal 15"


@pytest.mark.parametrize("ending", ["wait", pytest.param("deaf", marks=pytest.mark.full)])
def test_a_trial_that_takes_too_long_has_failed(
    ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its attempts count together; opened again, it has its time anew. Its slot goes to
    others. Its second attempt takes 2 s once it has begun.
    """
    plan = stub.planned(tmp_path)
    stub.behave(tmp_path, additive_0=ending)
    first = plan.trials()[0].workdir(tmp_path)
    first.mkdir(parents=True)
    earlier = Attempt.start(first)
    earlier._clock -= 58.5
    earlier.end("interrupted", 1)
    spent = property(lambda process: process.before + 2.0 * (len(read(first)) > 2))
    monkeypatch.setattr(live.Live, "seconds", spent)
    run(plan, tmp_path, [Slot(0)], limit=60.0, grace=0.3)
    (seen,) = [one for one in look_at_all(plan, tmp_path) if one.state != "done"]
    assert seen.state == "failed" and seen.message == "stopped after 1 minutes (--trial-timeout)"
    assert seen.attempts == 2
    assert attempts.spent(read(first)) >= 58
    attempts.reopen(first)
    assert attempts.spent(read(first)) == 0


def test_a_trial_stopped_by_request_is_asked_to_leave(tmp_path: Path) -> None:
    """From any terminal: all that is needed is the record. One that has not begun never does."""
    plan = stub.planned(tmp_path)
    stub.behave(tmp_path, additive_0="wait")

    def ask() -> None:
        stub.until(lambda: look_at_all(plan, tmp_path)[0].attempts > 0)
        for trial in (plan.trials()[0], plan.trials()[3]):
            trial.workdir(tmp_path).mkdir(parents=True, exist_ok=True)
            attempts.stop(trial.workdir(tmp_path), "stopped by request: of no use")

    thread = threading.Thread(target=ask)
    thread.start()
    run(plan, tmp_path, [Slot(0)])
    thread.join()
    seen = look_at_all(plan, tmp_path)
    assert [one.word for one in seen] == ["stopped", "done", "done", "stopped"]
    assert all(one.settled for one in seen) and [one.attempts for one in seen] == [1, 1, 1, 0]


@pytest.mark.parametrize("known", [True, False])
def test_killed_for_memory_is_tried_alone(
    known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all others have ended; killed once more, it has failed, and says why."""
    monkeypatch.setattr(live, "oom_kills", itertools.count().__next__ if known else lambda: None)
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    stub.behave(tmp_path, additive_0="die", general_0="die once")
    board = run(plan, tmp_path)
    found = {one.trial.name: one for one in look_at_all(plan, tmp_path) if one.attempts > 1}
    first, second = (plan.trials()[number].name for number in (0, 1))
    assert (found[first].state, found[first].attempts) == ("failed", 2)
    assert found.keys() == {first, second}
    killed = "its process was killed by SIGKILL, perhaps for lack of memory"
    assert found[first].message == f"{killed}, also with no other trial beside it"
    assert (found[second].state, found[second].attempts) == ("done", 2)
    again = f"{second}: {killed}; trying again when no other runs"
    assert again in board.lines and [use["trial"] for use in stub.uses(tmp_path)][-1] == second
    last = max(use["end"] for use in stub.uses(tmp_path)[:-1])
    records = [*read(tmp_path / "trials" / first), *read(tmp_path / "trials" / second)]
    starts = [record["time"] for record in records if record["event"] == "start"]
    assert sorted(starts)[-2] >= last - 0.01


def work_leaving(directory: Path, job: jobs.Job, slot: Slot) -> int:
    """A trial that somebody asks to leave four times before it may end."""
    with open(directory / "left", "a+") as left:
        left.seek(0)
        if len(left.readlines()) == 4:
            return stub.perform(directory, job, slot)
        left.write("left\n")
    return 128 + signal.SIGTERM


def test_a_trial_that_left_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = stub.planned(tmp_path, seeds=(0,))
    monkeypatch.setattr(Worker, "perform", staticmethod(work_leaving))
    board = run(plan, tmp_path, [Slot(0)], part=Part(only=("additive",)))
    assert states(plan, tmp_path)["additive_0"] == "done"
    words = f"{plan.trials()[0].name}: was asked to leave and has saved; going on with it"
    assert board.lines.count(words) == 4


def work_alone(directory: Path, job: jobs.Job, slot: Slot) -> int:
    """Trials that cannot train as one program: an error ends it, or every time a kill."""
    if len(job.trials) == 1:
        return stub.perform(directory, job, slot)
    with open(directory / "together", "a") as together:
        together.write(f"{len(job.trials)}\n")
    return os.kill(os.getpid(), signal.SIGKILL) or 0 if (directory / "killed").exists() else 1


@pytest.mark.parametrize(("killed", "times"), [(False, 1), (True, 3)])
def test_trials_that_cannot_train_together_train_one_at_a_time(
    killed: bool, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the one that is to blame fails; what had settled before stays as it is."""
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    stub.behave(tmp_path, general_0="fail")
    done = stub.finish(plan.trials()[3], tmp_path)
    if killed:
        (tmp_path / "killed").touch()
    monkeypatch.setattr(Worker, "perform", staticmethod(work_alone))
    board = run(plan, tmp_path, [Slot(0)], stack=True)
    assert (tmp_path / "together").read_text() == "3\n" * times + "2\n" * times
    ends = ["done", "failed", *["done"] * 4]
    assert [*states(plan, tmp_path).values()] == ends and len(read(done)) == 2
    names = [plan.trials()[number].name for number in (0, 2, 4, 1, 5)]
    assert [use["trial"] for use in stub.uses(tmp_path)] == names
    words = "and 2 more: could not be trained together; going on with one at a time"
    assert f"{names[0]} {words}" in board.lines


@pytest.mark.parametrize("ending", ["wait", pytest.param("deaf", marks=pytest.mark.full)])
def test_trials_do_not_outlive_a_launcher_that_is_killed(ending: str, tmp_path: Path) -> None:
    """They notice at once, save and leave, or are killed where they hang; so the next launcher
    finds their locks free.
    """
    directory = tmp_path / "sweep"
    plan = stub.planned(directory)
    stub.behave(directory, additive_0=ending, general_0=ending)
    launcher = stub.launcher_of(directory)
    stopped_by(launcher.send_signal, [signal.SIGKILL], plan, directory)
    launcher.wait()
    stub.until(lambda: count("running", plan, directory) == 0, 30)
    assert sorted(states(plan, directory).values()) == [*["interrupted"] * 2, *["pending"] * 2]


@pytest.mark.full
def test_kills_of_launchers_and_trials_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Ten kills at random moments; then every step was made once, every trial done once, and
    chosen and evaluated.
    """
    directory, rng = tmp_path / "sweep", random.Random(1)
    plan = stub.planned(directory, seeds=tuple(range(6)))
    launcher, kills, code = stub.launcher_of(directory), 0, None
    while kills < 10:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = launcher.wait(rng.uniform(0.1, 0.6))
            break
        kills += bool(kill(launcher, rng, gentle=False, middle=None))
        if launcher.poll() is not None:
            launcher = stub.launcher_of(directory)
    assert kills >= 3
    # killed thrice under one launcher is a failure, which the next one tries again
    for _ in range(3):
        code = launcher.wait(60)
        if {one.state for one in look_at_all(plan, directory)} == {"done"}:
            break
        launcher = stub.launcher_of(directory)
    assert code == 0 and doubled(directory) == [] and torn(directory) == []
    for trial in plan.trials():
        steps = (trial.workdir(directory) / "steps").read_text().split()
        assert steps == [str(step) for step in range(stub.STEPS)]
        assert (trial.workdir(directory) / "results.json").exists()


def test_evaluations_run_once_and_one_that_fails_is_told(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    run(plan, tmp_path)
    due = jobs.finals(plan, freeze(plan, tmp_path), tmp_path)
    assert [(job.kind, [one.seed for one in job.trials]) for job in due] == [("final", [0, 1])] * 2
    (tmp_path / "no finals").touch()
    (due[0].trials[0].workdir(tmp_path) / "log.txt").write_text("before\na sad last line\n\n")
    left = lambda: jobs.finals(plan, freeze(plan, tmp_path), tmp_path)
    sad = run(plan, tmp_path, [Slot(0)], due=left).lines
    assert f"{due[0].name}: a sad last line" in sad and len(sad) == 4 + 2  # and is not tried again
    work(tmp_path, [Slot(0)], Stop())  # nor for ever by a worker
    assert len(left()) == 2
    (tmp_path / "no finals").unlink()
    assert len(run(plan, tmp_path, due=left).lines) == 4 and left() == []


def begun(plan: Plan, directory: Path) -> list[int]:
    """How many processes have begun to train each trial."""
    return [one.attempts for one in look_at_all(plan, directory)]


def in_a_process(directory: Path, number: int) -> None:
    stub.hasten()
    work(directory, [Slot(number)], Stop())


@pytest.mark.quick
def test_a_worker_waits_for_the_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
def test_a_worker_leaves(launched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice is the launcher's to make; without one nothing is waited for, with one not for
    ever.
    """
    monkeypatch.setattr(worker, "IDLE", 0.5 if launched else 1e9)
    plan = stub.planned(tmp_path)
    with RunLock(tmp_path) if launched else contextlib.nullcontext():
        work(tmp_path, [Slot(0), Slot(1)], Stop())
    assert begun(plan, tmp_path) == [1, 1, 1, 1] and not (tmp_path / "choice.json").exists()
    assert {use["slot"] for use in stub.uses(tmp_path)} == {0, 1}


def test_workers_go_on_with_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_what_was_begun_comes_first_and_workers_begin_apart(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    listed = jobs.trainings(plan, None, tmp_path)
    for job in listed[3:5]:
        stub.finish(job.trials[0], tmp_path, "interrupted")
    names = [job.name for job in listed]
    of_each = [jobs.in_turn(listed, number, tmp_path) for number in range(3)]
    order = [[names.index(job.name) for job in jobs_] for jobs_ in of_each]
    assert order == [[3, 4, 0, 1, 2, 5], [4, 3, 1, 2, 5, 0], [3, 4, 2, 5, 0, 1]]


def test_what_follows_a_job_that_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that another process holds is asked for later; a failure without a record is that of its
    trial, not of its program.
    """
    plan = stub.planned(tmp_path)
    job = jobs.Job("train", tuple(plan.trials()[:2]))
    made = Worker(tmp_path, [Slot(0)], stub.Board(), Stop(), WorkOptions(), True)
    one = live.Live(stub.perform, tmp_path, job, Slot(0), WorkOptions(grace=1.0))
    one.kill()
    began = time.monotonic()
    made._ended(one, worker.HELD)
    assert made._asks > began and made._held == [job]

    def full(*given: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(attempts, "give_up", full)
    made._fail(job, "died")
    assert set(made.failures) == {trial.name for trial in job.trials}


def test_the_trial_whose_lock_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = stub.planned(tmp_path)
    job = jobs.Job("train", tuple(plan.trials()[:2]))
    first, second = (trial.workdir(tmp_path) for trial in job.trials)
    with RunLock(first), monkeypatch.context() as elsewhere:
        elsewhere.setattr(socket, "gethostname", lambda: "b")
        lock = RunLock(second)
    made = Worker(tmp_path, [Slot(0)], stub.Board(), Stop(), stack=True)
    ended = types.SimpleNamespace(job=job, why="", asked=False)
    made._ended(ended, worker.UNLOCKED)
    lock.release()
    words = f"the lock of {re.escape(str(second))} does not hold between machines: pid .* on b"
    with pytest.raises(locks.Unlocked, match=words):
        made.run(list)


def test_an_unreadable_record_stops_no_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said once; when nothing runs any more, it is raised."""
    monkeypatch.setattr(worker, "ASK", 0.01)
    monkeypatch.setattr(worker, "TICK", 0.01)
    plan, board = stub.planned(tmp_path), stub.Board()
    made = Worker(tmp_path, [Slot(0), Slot(1)], board, Stop())
    asked: list[int] = []

    def due() -> list[jobs.Job]:
        asked.append(1)
        if len(asked) > 1:
            raise UserError("no JSON")
        return jobs.trainings(plan, None, tmp_path)[:1]

    check_refused("no JSON", made.run, due)
    assert states(plan, tmp_path)["additive_0"] == "done"
    assert len(asked) > 3 and sum("no JSON" in line for line in board.lines) == 1
