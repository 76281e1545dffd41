"""The figures of a sweep from its records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.sweeps import measured
from tests.experiments import stub


@pytest.mark.quick
def test_overhead_is_what_is_neither_compiling_nor_steps(tmp_path: Path) -> None:
    """Two trials in one slot, one in another; the gap before a trial is its own."""
    plan = stub.planned(tmp_path)
    for trial, slot, start, end in zip(
        plan.trials(),
        (0, 1, 0, 1),
        (100.0, 100.5, 111.0, 121.0),
        (110.0, 120.0, 119.0, 130.0),
        strict=True,
    ):
        workdir = trial.workdir(tmp_path)
        workdir.mkdir(parents=True)
        begin = {"event": "start", "time": start, "slot": slot, "step": 0}
        finish = {
            "event": "end",
            "time": end,
            "state": "done",
            "step": 10,
            "first_step_seconds": 4.0 - trial.seed,
            "message": "",
        }
        (workdir / "events.jsonl").write_text(f"{json.dumps(begin)}\n{json.dumps(finish)}\n")
        records = [
            {"step": 1, "compile_seconds": 2.0},
            {"step": 1, "step_seconds": 1.0},
            {"step": 2, "step_seconds": 1.0},
        ]
        (workdir / "timing.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    assert measured(tmp_path) == {
        "seconds": 30.0,
        "overheads": [6.0, 15.5, 5.0, 6.0],
        "first": [4.0, 4.0],
        "later": [3.0, 3.0],
    }
