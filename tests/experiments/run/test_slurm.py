"""The launcher's side of a cluster, with a SLURM of three shell scripts, and what a worker does when
SLURM wants its node; the real one is `python -m tests.slurm`.
"""

import argparse
import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from attnlab.commands import Parser
from attnlab.commands.sweep_flags import add_running
from attnlab.experiments.run import Stop, WorkOptions, live, look_at_all, placing, slurm
from attnlab.experiments.run.jobs import trainings
from attnlab.experiments.run.slurm import ArrayJob, Cluster, Leave, Request, add_arguments, request
from attnlab.records import attempts
from tests.commands.tiny import refused
from tests.experiments import real, stub
from tests.refusals import check_refused

SBATCH = """#!/bin/sh
cp "$1" "$FAKE/batch.$(ls "$FAKE" | grep -c batch)"
if [ -e "$FAKE/refuse" ]; then echo "sbatch: error: invalid partition specified: nowhere" >&2; exit 1; fi
cp "$FAKE/after" "$FAKE/live" 2> /dev/null
echo "Submitted batch job 12"
"""
SQUEUE = """#!/bin/sh
echo "$@" >> "$FAKE/asked"
cat "$FAKE/live" 2> /dev/null || true
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what SLURM was told (batch.0, ...) and the workers that squeue shows (live;
    after: from the next sbatch on).
    """
    pytest.importorskip("submitit")
    folder = tmp_path / "fake"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("srun", "#!/bin/sh\n")):
        program = folder / name
        program.write_text(text)
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    monkeypatch.setenv("FAKE", str(folder))
    monkeypatch.setattr(placing, "POLL", 0.02)
    return folder


def parsed(*words: str) -> argparse.Namespace:
    parser = Parser()
    add_running(parser)
    add_arguments(parser)
    return parser.parse_args(words)


def batches(fake: Path) -> list[str]:
    return [path.read_text() for path in sorted(fake.glob("batch.*"))]


@pytest.mark.quick
def test_workers_are_one_array_with_what_was_asked_for(tmp_path: Path, fake: Path) -> None:
    plan = stub.planned(tmp_path / "sweep")
    jobs = trainings(plan, None, tmp_path / "sweep")
    sizes = {"minutes": 7, "warning": 40, "cores": 3, "gpus": 1}
    wanted = Request(2, **sizes, partition="big", other=(("account", "me"),))
    board = stub.Board()
    cluster = Cluster(tmp_path / "sweep", wanted, board, Stop())
    (fake / "after").write_text("12_0\n12_1\n")

    def cluster_works() -> None:
        while not batches(fake):
            time.sleep(0.01)
        for trial in plan.trials():
            stub.finish(trial, tmp_path / "sweep")

    thread = threading.Thread(target=cluster_works)
    thread.start()
    assert cluster.run(lambda: trainings(plan, None, tmp_path / "sweep")) == []
    thread.join()
    (batch,) = batches(fake)
    lines = [line for line in batch.splitlines() if line.startswith("#SBATCH")]
    flags = {line.removeprefix("#SBATCH --") for line in lines}
    asked = {"array=0-1%2", "time=7", "signal=USR2@40", "cpus-per-task=3", "gpus-per-node=1"}
    others = {"partition=big", "account=me", "requeue", "open-mode=append"}
    assert asked | others | {f"job-name={cluster.name}"} <= flags and "PYTHONPATH" in batch
    (srun,) = [line for line in batch.splitlines() if line.startswith("srun ")]
    assert "--cpus-per-task=3" in srun
    assert board.lines[0] == "submitted 2 worker(s) of 7 minutes as job 12"
    assert board.lines[1:] == [f"ended {job.name}" for job in jobs]
    assert f"--name={cluster.name}" in (fake / "asked").read_text() and cluster.workers() == 2
    assert Cluster(tmp_path / "other", wanted, board, Stop()).name != cluster.name
    cluster.leave()
    words = f"the workers go on without this launcher; 'scancel --name={cluster.name}' stops them"
    assert board.lines[-1] == words
    assert len(list((tmp_path / "sweep" / "slurm").glob("12_*_submitted.pkl"))) == 2


def test_what_slurm_refuses_is_one_line(tmp_path: Path, fake: Path) -> None:
    plan = stub.planned(tmp_path)
    (fake / "refuse").touch()
    cluster = Cluster(tmp_path, Request(1), stub.Board(), Stop())
    words = "SLURM did not take the workers: .*invalid partition specified: nowhere"
    check_refused(words, cluster.run, lambda: trainings(plan, None, tmp_path))
    error = "slurm_load_jobs error: Unable to contact controller"
    (fake / "squeue").write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    check_refused("squeue does not answer: .*Unable to contact controller", cluster.workers)


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--slots=0", "--slots: '0' is no whole number from 1 to 1,024"),
        ("--slurm.minutes=0", "--slurm.minutes: '0' is no whole number from 1 to 525,600"),
        ("--slurm.gpus=-1", "--slurm.gpus: '-1' is no whole number from 0 to 1,024"),
        ("--grace=120", "--grace=120: SLURM ends a worker 90 s after it has warned it; give both"),
        ("--slurm.minutes=1", "--slurm.warning=90: the whole time limit is 60 s (--slurm.minutes)"),
        ("--slurm.set=account", "--slurm.set=account: no value given, write --slurm.set=account="),
    ],
)
def test_flags_are_checked(flag: str, said: str) -> None:
    check_refused(re.escape(said), lambda: request(parsed(flag)))


def test_flags_become_the_request() -> None:
    sizes = ("--slots=3", "--slurm.minutes=5", "--slurm.cores=2")
    words = ("--slurm.partition=big", "--slurm.set=account=me", "--slurm.set=--qos=low")
    other = (("account", "me"), ("qos", "low"))
    assert request(parsed(*sizes, *words)) == Request(3, 5, 90, 2, 0, "big", other)
    assert request(parsed()) == Request()


def test_without_a_cluster_nothing_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    line = ("sweep", "experiments/quickstart.py", f"--dir={tmp_path / 'sweep'}", "--executor=slurm")
    words = "there is no SLURM here (srun is not found); start the sweep on a login node"
    assert words in refused(*line) and not (tmp_path / "sweep").exists()
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert "pip install 'attnlab[slurm]'" in refused(*line)


class StubJob(ArrayJob):
    """One whose trials train nothing."""

    def __call__(self, number: int) -> None:
        stub.hasten()
        super().__call__(number)


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
    os.environ["PYTHONPATH"] = f"{real.ROOT}{os.pathsep}{before}"
    try:
        job = executor.submit(StubJob(tmp_path), 0)
    finally:
        os.environ["PYTHONPATH"] = before
    records = lambda: [*tmp_path.glob("trials/*/*/events.jsonl")]
    stub.until(lambda: any(path.read_text() for path in records()))
    time.sleep(0.3)
    stub.behave(tmp_path)
    interrupt(tmp_path)
    job.result()
    first = plan.trials()[0].workdir(tmp_path)
    events = [(record["event"], record.get("state")) for record in attempts.read(first)]
    assert events == [("start", None), ("end", "interrupted"), ("start", None), ("end", "done")]
    assert [seen.attempts for seen in look_at_all(plan, tmp_path)] == [2, 1]


def interrupt(directory: Path) -> None:
    """What SLURM does to a job that is to leave: signals to all its processes, to the trial and the
    server it was forked from too.
    """
    (first,) = directory.glob("trials/additive*/seed0/events.jsonl")
    trial = json.loads(first.read_text())["pid"]
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


def test_a_trial_that_compiles_leaves_before_slurm_kills_its_worker(
    tmp_path: Path, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[WorkOptions] = []
    monkeypatch.setattr(slurm, "work", lambda folder, slots, stop, options: given.append(options))
    ArrayJob(tmp_path)(0)
    short = Cluster(tmp_path, Request(1, warning=20), stub.Board(), Stop())
    short._job(0)
    assert [(options.grace, options.compiling) for options in given] == [(60, 0), (20, 0)]


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
        slurm, "work", lambda directory, *given: number is None or signal.raise_signal(number)
    )
    calls: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: calls.append(number))
    try:
        ArrayJob(tmp_path)(0)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert calls == [signal.SIGUSR2] * again
