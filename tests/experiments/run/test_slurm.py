"""The launcher's side of a cluster, with a SLURM of three shell scripts; the real one is `python -m
tests.slurm`.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import pytest

from attnlab.commands import Parser, main
from attnlab.commands.sweep_flags import add_running
from attnlab.errors import UserError
from attnlab.experiments.run import slurm
from attnlab.experiments.run.jobs import finals, training
from attnlab.experiments.run.selection import freeze
from attnlab.experiments.run.slurm import Cluster, Request, add_arguments, request
from attnlab.experiments.run.stop import Stop
from tests.experiments import stub

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
    monkeypatch.setattr(slurm, "POLL", 0.02)
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
    jobs = training(plan, None, tmp_path / "sweep")
    wanted = Request(
        2, minutes=7, warning=40, cores=3, gpus=1, partition="big", other=(("account", "me"),)
    )
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
    assert cluster.run(jobs) == []
    thread.join()
    (batch,) = batches(fake)
    flags = {
        line.removeprefix("#SBATCH --") for line in batch.splitlines() if line.startswith("#SBATCH")
    }
    asked = {"array=0-1%2", "time=7", "signal=USR2@40", "cpus-per-task=3", "gpus-per-node=1"}
    others = {"partition=big", "account=me", "requeue", "open-mode=append"}
    assert asked | others | {f"job-name={cluster.name}"} <= flags and "PYTHONPATH" in batch
    (srun,) = [line for line in batch.splitlines() if line.startswith("srun ")]
    assert "--cpus-per-task=3" in srun
    assert board.lines[0] == "submitted 2 worker(s) of 7 minutes as job 12"
    assert board.lines[1:] == [f"ended {job.name}" for job in jobs]
    assert f"--name={cluster.name}" in (fake / "asked").read_text()
    assert len(list((tmp_path / "sweep" / "slurm").glob("12_*_submitted.pkl"))) == 2


def test_workers_of_an_earlier_launcher_are_found(tmp_path: Path, fake: Path) -> None:
    """Only what is missing is submitted, and evaluations are left to the workers that are there."""
    plan = stub.planned(tmp_path)
    (fake / "live").write_text("12_0\n12_1\n12_2\n")
    board = stub.Board()
    cluster = Cluster(tmp_path, Request(4), board, Stop())
    assert Cluster(tmp_path / "other", Request(4), board, Stop()).name != cluster.name
    (fake / "after").write_text("")
    for trial in plan.trials()[1:]:
        stub.finish(trial, tmp_path)

    def finish() -> None:
        time.sleep(0.2)
        stub.finish(plan.trials()[0], tmp_path)

    thread = threading.Thread(target=finish)
    thread.start()
    assert cluster.run(training(plan, None, tmp_path)) == [] and batches(fake) == []
    thread.join()
    due = finals(plan, freeze(plan, tmp_path), tmp_path)
    assert len(due) == 2
    (fake / "live").write_text("")
    assert len(cluster.run(due)) == 1  # nobody there, and nobody stays
    assert len(batches(fake)) == slurm.SUBMISSIONS


def test_workers_that_do_not_stay_are_told_of(tmp_path: Path, fake: Path) -> None:
    plan = stub.planned(tmp_path)
    cluster = Cluster(tmp_path, Request(2), stub.Board(), Stop())
    (line,) = cluster.run(training(plan, None, tmp_path))
    words = f"and 3 more: no worker stays; their logs lie in {tmp_path / 'slurm'}"
    assert line == f"{plan.trials()[0].name} {words}"
    assert len(batches(fake)) == slurm.SUBMISSIONS


def test_a_launcher_that_is_stopped_leaves_the_workers_at_work(tmp_path: Path, fake: Path) -> None:
    plan = stub.planned(tmp_path)
    (fake / "after").write_text("12_0\n")
    board, stop = stub.Board(), Stop()
    cluster = Cluster(tmp_path, Request(1), board, stop)  # type: ignore[arg-type]
    threading.Timer(0.2, lambda: stop.signals.append(2)).start()
    assert cluster.run(training(plan, None, tmp_path)) == []
    words = f"the workers go on without this launcher; 'scancel --name={cluster.name}' stops them"
    assert board.lines[-1] == words


def test_what_slurm_refuses_is_one_line(tmp_path: Path, fake: Path) -> None:
    plan = stub.planned(tmp_path)
    (fake / "refuse").touch()
    cluster = Cluster(tmp_path, Request(1), stub.Board(), Stop())
    refused = "SLURM did not take the workers: .*invalid partition specified: nowhere"
    with pytest.raises(UserError, match=refused):
        cluster.run(training(plan, None, tmp_path))
    error = "slurm_load_jobs error: Unable to contact controller"
    (fake / "squeue").write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    with pytest.raises(UserError, match="squeue does not answer: .*Unable to contact controller"):
        cluster.workers()


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--slots=0", "--slots: '0' is no whole number from 1 to 1,024"),
        ("--slurm.minutes=0", "--slurm.minutes: '0' is no whole number from 1 to 525,600"),
        ("--slurm.gpus=-1", "--slurm.gpus: '-1' is no whole number from 0 to 1,024"),
        ("--slurm.minutes=1", "--slurm.warning=90: the whole time limit is 60 s (--slurm.minutes)"),
        (
            "--slurm.set=account",
            "--slurm.set=account: no value given, write --slurm.set=account=VALUE",
        ),
    ],
)
def test_flags_are_checked(flag: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        request(parsed(flag))
    assert said in str(error.value)


def test_flags_become_the_request() -> None:
    sizes = ("--slots=3", "--slurm.minutes=5", "--slurm.cores=2")
    words = ("--slurm.partition=big", "--slurm.set=account=me", "--slurm.set=--qos=low")
    other = (("account", "me"), ("qos", "low"))
    assert request(parsed(*sizes, *words)) == Request(3, 5, 90, 2, 0, "big", other)
    assert request(parsed()) == Request()


def test_without_a_cluster_nothing_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    line = ["sweep", "experiments/quickstart.py", f"--dir={tmp_path / 'sweep'}"]
    assert main([*line, "--executor=slurm"]) == 2
    words = "there is no SLURM here (srun is not found); start the sweep on a login node"
    assert words in capsys.readouterr().err
    assert not (tmp_path / "sweep").exists()
    monkeypatch.setitem(__import__("sys").modules, "submitit", None)
    assert main([*line, "--executor=slurm"]) == 2
    assert "pip install 'attnlab[slurm]'" in capsys.readouterr().err
