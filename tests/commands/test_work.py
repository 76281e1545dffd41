"""`work` takes the trials that are left of a sweep and chooses nothing; real trials are in
tests/experiments/run/test_worker.py's neighbours.
"""

import contextlib
import dataclasses
import fcntl
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from attnlab.experiments.run import live
from attnlab.experiments.run.slots import usable_cores
from attnlab.experiments.run.worker import Worker
from attnlab.records import attempts
from attnlab.records.locks import RunLock
from attnlab.records.tracking import Tracking
from tests.commands.tiny import completed, refused, run_command
from tests.experiments import stub


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PRELOAD", ("tests.experiments.stub",))
    monkeypatch.setattr(live, "oom_kills", lambda: 0)
    monkeypatch.setattr(Worker, "perform", staticmethod(stub.perform))


def test_what_is_left_is_taken_and_nothing_is_chosen(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    stub.behave(tmp_path, general_1="fail")
    part = completed(["work", str(tmp_path), "--slots=2", "--only=*/seed0"])
    choosing = f"'sweep {plan.file} --dir={tmp_path}' chooses when all has settled"
    assert part.out.splitlines()[-1] == f"nothing is left to take; {choosing}"
    assert [use["trial"] for use in stub.uses(tmp_path)] and len(stub.uses(tmp_path)) == 2
    ended = run_command(["work", str(tmp_path), "--slots=2"])
    assert ended.code == 1
    assert ended.err == f"{plan.trials()[3].name} failed at step 3: ValueError: no good\n"
    assert len(stub.uses(tmp_path)) == 4
    assert not (tmp_path / "choice.json").exists()
    assert not list(tmp_path.rglob("results.json"))


def test_signals_are_heard_while_a_tracker_is_told_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers = []

    @contextlib.contextmanager
    def beside(self: Tracking, directory: Path) -> Iterator[None]:
        handlers.append(signal.getsignal(signal.SIGTERM))
        yield
        handlers.append(signal.getsignal(signal.SIGTERM))

    monkeypatch.setattr(Tracking, "beside", beside)
    monkeypatch.setattr("attnlab.experiments.run.work", lambda *given: None)
    stub.planned(tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    assert run_command(["work", str(tmp_path), "--slots=1"]).code == 0
    assert handlers == [before, before]


def test_what_is_refused(tmp_path: Path) -> None:
    stub.planned(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    words = "--only=genral: no variant, candidate or trial is called so; did you mean 'general'?\n"
    assert refused("work", str(tmp_path), "--only=genral").endswith(f"error: {words}")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_launcher_on_another_machine_whose_lock_is_not_seen_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.planned(tmp_path)
    with RunLock(tmp_path) as launcher:
        monkeypatch.setattr(fcntl, "flock", lambda *given: None)
        monkeypatch.setattr(socket, "gethostname", lambda: "b")
        threading.Timer(0.2, launcher.answer).start()
        line = refused("work", str(tmp_path), "--slots=1")
    assert f"the lock of {tmp_path} does not hold between machines: pid" in line
    assert not list(tmp_path.glob("trials/*"))


def test_fewer_cores_than_planned_are_refused_or_recorded(tmp_path: Path) -> None:
    cores = len(usable_cores())
    plan = dataclasses.replace(stub.planned(tmp_path), cores=cores + 1)
    plan.write(tmp_path)
    line = ["work", str(tmp_path), "--slots=1"]
    assert f"with {cores + 1} cores, and a slot here has {cores}; take" in refused(*line)
    assert run_command([*line, "--accept-cores"]).code == 0
    starts = [attempts.read(one.workdir(tmp_path))[0] for one in plan.trials()]
    assert [one["planned_cores"] for one in starts] == [cores + 1] * 4
