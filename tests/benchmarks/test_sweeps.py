"""The figures of a sweep from its records."""

import json
from pathlib import Path

import pytest

from benchmarks.sweeps import measured
from tests.experiments import stub


@pytest.mark.quick
def test_overhead_is_what_is_neither_compiling_nor_steps(tmp_path: Path) -> None:
    """Two trials in one slot, one in another; the gap before a trial is its own."""
    plan = stub.planned(tmp_path)
    slots, starts, ends = (0, 1, 0, 1), (100.0, 100.5, 111.0, 121.0), (110.0, 120.0, 119.0, 130.0)
    records = [{"step": 1, "compile_seconds": 2.0}]
    records += [{"step": step, "step_seconds": 1.0} for step in (1, 2)]
    for trial, slot, start, end in zip(plan.trials(), slots, starts, ends, strict=True):
        first = {"first_step_seconds": 4.0 - trial.seed, "message": ""}
        events = [
            {"event": "start", "time": start, "slot": slot, "step": 0},
            {"event": "end", "time": end, "state": "done", "step": 10, **first},
        ]
        workdir = trial.workdir(tmp_path)
        workdir.mkdir(parents=True)
        for file, lines in (("events", events), ("timing", records)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (workdir / f"{file}.jsonl").write_text(text)
    assert measured(tmp_path) == {
        "seconds": 30.0,
        "overheads": [6.0, 15.5, 5.0, 6.0],
        "first": [4.0, 4.0],
        "later": [3.0, 3.0],
    }
