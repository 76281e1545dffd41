"""The records of processes that worked on a trial."""

import os
import socket
import time
from pathlib import Path

import pytest

from attnlab.experiments.run.slots import Slot
from attnlab.records import attempts
from attnlab.records.attempts import Attempt


class Clock:
    """Seconds that a test sets."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        patch.setattr(attempts.time, "monotonic", lambda: self.now)


@pytest.mark.quick
def test_a_start_and_an_end_say_who_where_and_how_long(tmp_path: Path) -> None:
    for step in (4, 12, 8):
        (tmp_path / "checkpoints" / str(step) / "state").mkdir(parents=True)
    (tmp_path / "checkpoints" / "12.tmp").mkdir()
    attempt = Attempt.start(tmp_path, Slot(3, (0, 1), {"OMP_NUM_THREADS": "2"}).use)
    time.sleep(0.02)
    attempt.end("diverged", 20, "loss nan", 1.5)
    start, end = attempts.read(tmp_path)
    place = {"slot": 3, "cores": [0, 1], "devices": {"OMP_NUM_THREADS": "2"}}
    who = {"pid": os.getpid(), "host": socket.gethostname()}
    assert start == {"event": "start", "time": start["time"], **who, **place, "step": 12}
    assert abs(start["time"] - time.time()) < 60 and 0.02 <= end["seconds"] < 60
    assert end["event"] == "end" and end["state"] == "diverged" and end["step"] == 20
    assert end["message"] == "loss nan" and end["first_step_seconds"] == 1.5
    assert 5e6 < end["peak_bytes"] < 1e11  # a Python process in bytes, not in kibibytes


def test_records_are_only_ever_added(tmp_path: Path) -> None:
    """A start without a slot, the launcher's own words in between, and one record a line."""
    Attempt.start(tmp_path, None)
    before = (tmp_path / attempts.FILE).read_bytes()
    attempts.stop(tmp_path, "pruned: \n two lines, umlaut ä")
    attempts.give_up(tmp_path, "killed")
    attempts.reopen(tmp_path)
    actual = attempts.read(tmp_path)
    assert (tmp_path / attempts.FILE).read_bytes().startswith(before)
    assert [line["event"] for line in actual] == ["start", "stop", "end", "retry"]
    assert "slot" not in actual[0]
    assert actual[2]["state"] == "failed" and actual[2]["message"] == "killed"
    assert actual[1]["message"] == "pruned: \n two lines, umlaut ä"


def test_how_far_it_is_is_told_at_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every five seconds, later less often, so that the file of a long run stays small; whatever
    the date is set to in between.
    """
    clock, attempt = Clock(monkeypatch), Attempt(tmp_path)
    assert attempts.read(tmp_path) == []
    for step, now in enumerate((0, 1, 4.9, 5, 9.9, 10, 4000, 4019, 4021)):
        clock.now = 1000.0 + now
        attempt.at(step)
        assert attempt.step == step
    records = attempts.read(tmp_path)
    assert [record["event"] for record in records] == ["start", *["step"] * 4]
    assert [record["step"] for record in records] == [0, 3, 5, 6, 8]
    # as one that died here
    assert attempts.last_word(attempts.read(tmp_path)) == ("interrupted", 8, "")
    monkeypatch.setattr(attempts.time, "time", lambda: 5.0)  # somebody has set the date
    attempt.end("done", 9)
    assert attempts.read(tmp_path)[-1]["seconds"] == 4021.0
    clock.now += 1e6
    for step in range(1000):
        clock.now += 1.0
        attempt.at(step)
    assert len(attempts.read(tmp_path)) < 30


def test_one_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    """A run that is refused before its first step stays as it was, until a launcher gives it up."""
    Attempt(tmp_path).end("failed", 0, "refused")
    assert list(tmp_path.iterdir()) == [] and attempts.last_word([]) == ("pending", 0, "")
    attempts.give_up(tmp_path, "no word")
    assert [(line["state"], line["step"]) for line in attempts.read(tmp_path)] == [("failed", 0)]


def test_the_records_of_an_earlier_version_are_read_and_go_on(tmp_path: Path) -> None:
    Attempt.start(tmp_path).end("failed", 3, "full disk")
    (tmp_path / attempts.FILE).rename(tmp_path / "attempts.jsonl")
    assert attempts.last_word(attempts.read(tmp_path)) == ("failed", 3, "full disk")
    attempts.reopen(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [attempts.FILE]
    assert [line["event"] for line in attempts.read(tmp_path)] == ["start", "end", "retry"]


def test_runs_in_one_program_share_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, attempt = Clock(monkeypatch), Attempt.start(tmp_path, {"together": 4})
    clock.now += 8.0
    attempt.at(1)
    attempt.end("interrupted", 2)
    assert attempts.spent(attempts.read(tmp_path)) == 2.0
