"""States from records: every moment at which a trial may be looked at, or may have died."""

from pathlib import Path

import pytest

from attnlab.experiments.plan import Trial
from attnlab.experiments.run import counts, look, recorded
from attnlab.experiments.run.slots import Slot
from attnlab.records import attempts
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from tests.experiments import stub


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    """The first trial of a small plan in `tmp_path`."""
    return stub.planned(tmp_path).trials()[0]


def began(trial: Trial, directory: Path) -> tuple[Path, Attempt]:
    workdir = trial.workdir(directory)
    workdir.mkdir(parents=True, exist_ok=True)
    return workdir, Attempt.start(workdir, Slot(1, (0,), {"CUDA_VISIBLE_DEVICES": "1"}).use)


@pytest.mark.quick
def test_a_trial_from_its_first_moment_to_its_last(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "INTERVAL", 0.0)
    assert look(trial, tmp_path).state == "pending" and look(trial, tmp_path).total == stub.STEPS
    with RunLock(trial.workdir(tmp_path)):
        assert look(trial, tmp_path).state == "running"
        workdir, attempt = began(trial, tmp_path)
        attempt.at(4)
        seen = look(trial, tmp_path)
        assert seen.state == "running" and seen.step == 4 and seen.attempts == 1
        assert seen.since == round(attempt.began or 0.0, 3)
    assert look(trial, tmp_path).state == "interrupted"  # killed
    (workdir / "valid.json").write_text("{}")
    # killed before it said so: looked at again, with nothing left to train
    assert look(trial, tmp_path).state == "interrupted"
    attempt.end("done", stub.STEPS)
    assert look(trial, tmp_path).state == "done" and look(trial, tmp_path).settled
    (workdir / "valid.json").unlink()
    assert look(trial, tmp_path).state == "interrupted"


@pytest.mark.parametrize(
    ("state", "settled"), [("failed", True), ("diverged", True), ("interrupted", False)]
)
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
    assert look(trial, tmp_path).settled
    assert look(trial, tmp_path).message == "pruned after 2 evaluations"
    attempt.end("interrupted", 7, "signal 15")
    seen = look(trial, tmp_path)
    assert seen.state == "interrupted" and seen.step == 7
    assert seen.message == "pruned after 2 evaluations" and seen.settled is True
    assert seen.word == "pruned" and counts([seen]) == {"pruned": 1}
    stub.finish(trial, tmp_path)
    assert look(trial, tmp_path).state == "done"


def test_a_torn_last_record_is_as_if_it_had_not_been_written(trial: Trial, tmp_path: Path) -> None:
    workdir, attempt = began(trial, tmp_path)
    attempt.end("done", 10)
    path = workdir / "events.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert recorded(trial, tmp_path).state == "interrupted"
    began(trial, tmp_path)[1].end("done", 10)  # not glued to the torn line
    assert recorded(trial, tmp_path).attempts == 2


def test_a_settled_trial_is_settled_whoever_holds_it(trial: Trial, tmp_path: Path) -> None:
    """Its own process that has not left yet, or its evaluation."""
    workdir = stub.finish(trial, tmp_path)
    with RunLock(workdir):
        assert look(trial, tmp_path).state == "done"


def test_when_silence_is_too_long(trial: Trial, tmp_path: Path) -> None:
    """Ten minutes, but five times the longest silence before; half an hour before the first step,
    which waits for data and compiling.
    """
    workdir, _ = began(trial, tmp_path)
    start = attempts.read(workdir)[0]["time"]
    with RunLock(workdir):
        seen = look(trial, tmp_path)
        assert (seen.heard, seen.pace) == (start, None)
        assert [seen.stalled(start + after) for after in (-5, 1700, 1900)] == [False, False, True]
        attempts._append(workdir, "step", {"seconds": 6.0, "step": 3}, start + 60)
        seen = look(trial, tmp_path)
        # by the clock that nobody sets
        assert (seen.age(start + 90), seen.gap, seen.pace) == (30, 60, 0.0)
        assert [seen.stalled(seen.heard + after) for after in (590, 610)] == [False, True]
        attempts._append(workdir, "step", {"step": 4, "seconds": 8.0}, start + 460)
        assert look(trial, tmp_path).pace == 2.0  # the first three had compiling in them
        seen = look(trial, tmp_path)
        assert [seen.stalled(start + 460 + after) for after in (1990, 2010)] == [False, True]
    assert not look(trial, tmp_path).stalled(start + 1e6)  # nobody runs it


def test_seconds_of_attempts(trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not of every word on the way, which tells of seconds too."""
    monkeypatch.setattr(attempts, "INTERVAL", 0.0)
    _, attempt = began(trial, tmp_path)
    for step in range(5):
        attempt.at(step)
    attempt.end("interrupted", 5)
    ended = attempts.read(trial.workdir(tmp_path))[-1]["seconds"]
    assert recorded(trial, tmp_path).seconds == ended
