"""States from records: every moment at which a trial may be looked at, or may have died."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlab.experiments.plan import Trial
from attnlab.experiments.running import attempts
from attnlab.experiments.running.attempts import Attempt
from attnlab.experiments.running.slots import Slot
from attnlab.experiments.running.state import counts, look, look_at_all, recorded
from attnlab.training.records import RunLock, Status
from tests.experiments import stub


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """The first trial of a small plan in `tmp_path`."""
    return stub.planned(tmp_path).trials()[0]


def began(trial: Trial, directory: Path) -> tuple[Path, Attempt]:
    workdir = trial.workdir(directory)
    workdir.mkdir(parents=True, exist_ok=True)
    return workdir, Attempt.start(workdir, Slot(1, (0,), {"CUDA_VISIBLE_DEVICES": "1"}))


@pytest.mark.quick
def test_a_trial_from_its_first_moment_to_its_last(trial: Trial, tmp_path: Path) -> None:
    assert look(trial, tmp_path).state == "pending" and look(trial, tmp_path).total == stub.STEPS
    with RunLock(trial.workdir(tmp_path)):
        assert look(trial, tmp_path).state == "running"
        workdir, attempt = began(trial, tmp_path)
        Status(workdir, stub.STEPS).update("running", 4)
        seen = look(trial, tmp_path)
        assert (seen.state, seen.step, seen.attempts, seen.since) == ("running", 4, 1, round(attempt.began, 3))
    assert look(trial, tmp_path).state == "interrupted"  # killed
    Status(workdir, stub.STEPS).update("done", stub.STEPS)
    assert look(trial, tmp_path).state == "interrupted"  # killed before its scores were written
    (workdir / "valid.json").write_text("{}")
    assert look(trial, tmp_path).state == "interrupted"  # killed before it said so: looked at again, with nothing left to train
    attempt.end("done", stub.STEPS)
    assert look(trial, tmp_path).state == "done" and look(trial, tmp_path).settled
    (workdir / "valid.json").unlink()
    assert look(trial, tmp_path).state == "interrupted"


@pytest.mark.parametrize(("state", "settled"), [("failed", True), ("diverged", True), ("interrupted", False)])
def test_how_an_attempt_ended(state: str, settled: bool, trial: Trial, tmp_path: Path) -> None:
    workdir, attempt = began(trial, tmp_path)
    attempt.end(state, 3, "why")  # type: ignore[arg-type]
    seen = look(trial, tmp_path)
    assert (seen.state, seen.step, seen.message, seen.settled) == (state, 3, "why", settled)
    attempts.reopen(workdir)
    assert (look(trial, tmp_path).state, look(trial, tmp_path).message) == ("interrupted", "")
    began(trial, tmp_path)[1].end("diverged", 5, "later")
    assert (look(trial, tmp_path).state, look(trial, tmp_path).attempts) == ("diverged", 2)


def test_a_pruned_trial_has_settled_whenever_it_died(trial: Trial, tmp_path: Path) -> None:
    """The reason is written before the signal is sent; one that was done in time is done."""
    workdir, attempt = began(trial, tmp_path)
    attempts.stop(workdir, "pruned after 2 evaluations")
    assert look(trial, tmp_path).settled and look(trial, tmp_path).message == "pruned after 2 evaluations"
    attempt.end("interrupted", 7, "signal 15")
    seen = look(trial, tmp_path)
    assert (seen.state, seen.step, seen.message, seen.settled) == ("interrupted", 7, "pruned after 2 evaluations", True)
    assert seen.word == "pruned" and counts([seen]) == {"pruned": 1}
    stub.finish(trial, tmp_path)
    assert look(trial, tmp_path).state == "done"


def test_a_torn_last_record_is_as_if_it_had_not_been_written(trial: Trial, tmp_path: Path) -> None:
    workdir, attempt = began(trial, tmp_path)
    attempt.end("done", 10)
    path = workdir / "attempts.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert recorded(trial, tmp_path).state == "interrupted"
    began(trial, tmp_path)[1].end("done", 10)  # not glued to the torn line
    assert recorded(trial, tmp_path).attempts == 2


def test_a_settled_trial_is_settled_whoever_holds_it(trial: Trial, tmp_path: Path) -> None:
    """Its own process that has not left yet, or its evaluation."""
    workdir = stub.finish(trial, tmp_path)
    with RunLock(workdir):
        assert look(trial, tmp_path).state == "done"


def test_counts_name_only_what_occurs(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    first, second, third, _ = plan.trials()
    stub.finish(first, tmp_path)
    stub.finish(second, tmp_path, "failed")
    with RunLock(third.workdir(tmp_path)):
        assert counts(look_at_all(plan, tmp_path)) == {"done": 1, "running": 1, "pending": 1, "failed": 1}
