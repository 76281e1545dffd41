"""The figures of a sweep from its records; every subset of its seeds, judged by itself."""

import json
from pathlib import Path

import pytest

from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.comparison import compare
from benchmarks.subsets import declared, formerly
from benchmarks.sweeps import measured
from tests.experiments import stub
from tests.experiments.synthetic import sweep


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


def test_few_seeds_declare_with_the_present_method_what_they_did_not_with_the_former(
    tmp_path: Path,
) -> None:
    scores = {
        "a": (0.90, 0.92, 0.91, 0.93),
        "b": (0.86, 0.83, 0.87, 0.85),
        "c": (0.91, 0.90, 0.92, 0.93),
    }
    comparison = compare(collect(sweep(tmp_path, scores)))
    assert declared(comparison, [0, 1, 2, 3]) == {("a", "b"): 1, ("a", "c"): 0, ("b", "c"): -1}
    assert declared(comparison, [1, 2, 3]) == {("a", "b"): 1, ("a", "c"): 0, ("b", "c"): -1}
    assert set(formerly(comparison, [1, 2, 3]).values()) == {0}
