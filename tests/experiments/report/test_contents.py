"""What a report says in sentences: extent, verdict, and what is still to come."""

import math
from pathlib import Path

from attnlab.experiments.report.contents import gather
from tests.experiments.synthetic import SCORES, sweep, workdir


def test_a_sweep_with_losses(tmp_path: Path) -> None:
    scores = {**SCORES, "general": (0.9, math.nan, math.nan, 0.9)}
    contents = gather(sweep(tmp_path, scores, tuned={0.001: 1.0, 0.003: 0.0}))
    assert contents.extent.endswith("24 trials: 20 done, 4 diverged") and contents.unfinished == ""


def test_what_is_still_to_come(tmp_path: Path) -> None:
    directory = sweep(tmp_path, final=False)
    words = "Unfinished: all trials have settled, and the choice is not made yet"
    assert gather(directory).unfinished.startswith(words)
    (workdir(directory, "general", 1) / "events.jsonl").unlink()
    contents = gather(directory)
    assert contents.unfinished.startswith("Unfinished: 1 of 12 trials have not settled")
    assert contents.extent.endswith("11 done, 1 pending")
    frozen = sweep(tmp_path / "frozen")
    (workdir(frozen, "general", 1) / "results.json").unlink()
    contents = gather(frozen)
    assert "not every chosen trial is scored" in contents.unfinished
    assert contents.comparison.rows[1].missing == ("seed 1 not scored yet",)
