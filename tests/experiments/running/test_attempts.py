"""The records of processes that worked on a trial."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from attnlab.experiments.running import attempts
from attnlab.experiments.running.attempts import Attempt
from attnlab.experiments.running.slots import Slot


@pytest.mark.quick
def test_a_start_and_an_end_say_who_where_and_how_long(tmp_path: Path) -> None:
    for step in (4, 12, 8):
        (tmp_path / "checkpoints" / str(step)).mkdir(parents=True)
    (tmp_path / "checkpoints" / "12.tmp").mkdir()
    attempt = Attempt.start(tmp_path, Slot(3, (0, 1), {"OMP_NUM_THREADS": "2"}))
    time.sleep(0.02)
    attempt.end("diverged", 20, "loss nan", 1.5)
    start, end = attempts.read(tmp_path)
    assert start == {
        "event": "start",
        "time": start["time"],
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "slot": 3,
        "cores": [0, 1],
        "devices": {"OMP_NUM_THREADS": "2"},
        "step": 12,
    }
    assert abs(start["time"] - time.time()) < 60 and 0.02 <= end["seconds"] < 60
    assert (end["event"], end["state"], end["step"], end["message"], end["first_step_seconds"]) == ("end", "diverged", 20, "loss nan", 1.5)
    assert 5e6 < end["peak_bytes"] < 1e11  # a Python process in bytes, not in kibibytes


def test_records_are_only_ever_added(tmp_path: Path) -> None:
    """A start without a slot, the launcher's own words in between, and one record a line."""
    Attempt.start(tmp_path, None)
    before = (tmp_path / attempts.FILE).read_bytes()
    attempts.stop(tmp_path, "pruned: \n two lines, umlaut ä")
    attempts.give_up(tmp_path, "killed")
    attempts.reopen(tmp_path)
    found = attempts.read(tmp_path)
    assert (tmp_path / attempts.FILE).read_bytes().startswith(before)
    assert [one["event"] for one in found] == ["start", "stop", "end", "retry"] and "slot" not in found[0]
    assert (found[2]["state"], found[2]["message"], found[1]["message"]) == ("failed", "killed", "pruned: \n two lines, umlaut ä")


def test_giving_up_on_a_trial_that_never_began(tmp_path: Path) -> None:
    attempts.give_up(tmp_path, "no word")
    assert [(one["state"], one["step"]) for one in attempts.read(tmp_path)] == [("failed", 0)]
