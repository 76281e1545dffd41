"""What a variant took: its reported seeds, and all of its tuning."""

from pathlib import Path

import pytest

from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.contents import gather
from attnlab.experiments.report.totals import taken
from attnlab.pages.tables import Table
from tests.experiments.report.tabled import part
from tests.experiments.synthetic import edit_candidates, end, lines, start, sweep, workdir

TWO = {"a": (0.9, 0.8), "b": (0.5, 0.4)}


def costs(directory: Path) -> Table:
    """The table of what the variants of a sweep took."""
    return part(gather(directory), "What it took")


@pytest.mark.quick
def test_reported_seeds_and_all_of_the_tuning(tmp_path: Path) -> None:
    """12 steps of 2.5 GFLOPs in 30.5 seconds each: two seeds are reported, two settings with two
    seeds each were trained.
    """
    directory = sweep(tmp_path, TWO, tuned={0.001: 1.0, 0.003: 0.0})
    edit_candidates(directory, counted={"transcendentals": 3e6, "examples": 16.5})
    table = costs(directory)
    counts = ("steps", "training FLOPs", "transcendentals", "examples", "tokens", "time")
    assert table.columns == ("variant", "trials", *counts)
    assert table.rows[:2] == (
        ("a", "2 reported", "24", "60 G", "72 M", "396", "4,800", "0:01:01"),
        ("", "all 4", "48", "120 G", "144 M", "792", "9,600", "0:02:02"),
    )
    assert len(table.rows) == 4


def test_without_tuning_there_is_one_row(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO)
    made = {"compiled": 3, "compiled_seconds": 1.5, "loaded": 4, "loaded_seconds": 0.25, "step": 1}
    lines(workdir(directory, "a", 0) / "timing.jsonl", [made])
    table = costs(directory)
    assert "Compiled programs: 3 in 1.5 s; another 4" in table.notes[-1]
    assert table.columns == ("variant", "trials", "steps", "training FLOPs", "tokens", "time")
    assert len(table.rows) == 2
    assert costs(sweep(tmp_path / "open", TWO, final=False)).rows[0][1] == "all 2"


def test_steps_done_again_after_a_kill_count_and_so_does_the_time(tmp_path: Path) -> None:
    """Killed at step 8 (last heard), gone on from the checkpoint of step 4 to the end: 8 + 8 steps;
    20 + 10 seconds.
    """
    directory = sweep(tmp_path, TWO)
    again = [start(100.0), {"event": "step", "time": 120.0, "step": 8}, start(200.0, 4)]
    lines(workdir(directory, "a", 0) / "events.jsonl", [*again, end(210.0, 10.0)])
    record = collect(directory).trials[0]
    assert (record.effort.steps, record.effort.seconds, record.effort.began) == (16, 30.0, 100.0)
    assert taken([record]).flops == 16 * 2.5e9
    given_up = end(9000.0, None, state="failed", step=3, message="died")  # no end of its own
    records = [start(100.0), {"event": "step", "time": 107.0, "step": 3}, given_up]
    lines(workdir(directory, "a", 1) / "events.jsonl", records)
    assert collect(directory).trials[1].effort.seconds == 7.0


def test_trials_of_one_program_share_its_time(tmp_path: Path) -> None:
    directory = sweep(tmp_path, TWO)
    for seed in (0, 1):
        pace = {"step": 3, "step_seconds": 0.01, "together": 2}
        lines(workdir(directory, "a", seed) / "timing.jsonl", [pace])
    records = collect(directory)
    assert taken(records.of(records.plan.candidates[0])).seconds == pytest.approx(30.5)
