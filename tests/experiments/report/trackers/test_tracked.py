"""A trial as a run: its id stays, its digest follows its records."""

import math
from pathlib import Path

from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.trackers import tracked
from tests.experiments.report.trackers.offline import change, made
from tests.experiments.synthetic import edit, lines, sweep, workdir


def test_ids_stay_and_digests_follow_the_records(tmp_path: Path) -> None:
    """Growing the sweep changes no id; another sweep of the same file has others."""
    directory = made(tmp_path / "sweep")
    before = tracked(collect(directory))
    change(directory)
    edit(directory / "plan.json", hash="f" * 12, seeds=[0, 1, 2])
    after = tracked(collect(directory))
    # a third seed is planned and has not begun
    assert [run.id for run in after] == [run.id for run in before]
    expected = [False, *[True] * 7]
    assert [run.digest == old.digest for run, old in zip(after, before, strict=True)] == expected
    edit(directory / "plan.json", created="2026-01-02T00:00:00+00:00")
    assert not {run.id for run in tracked(collect(directory))} & {run.id for run in before}


def test_curves_are_by_step_and_keep_what_is_not_finite(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"a": (0.9,)}, name="bottleneck:my/folder")
    train = {"step": 3, "split": "train", "loss": math.nan, "note": "x"}
    records = [train, {**train, "split": "valid", "loss": 1.5}]
    lines(workdir(directory, "a", 0) / "metrics.jsonl", records)
    (run,) = tracked(collect(directory))
    (point,) = run.curve
    assert math.isnan(point.values["train/loss"]) and point.values["valid/loss"] == 1.5
    assert len(point.values) == 2
    assert point.time == 100.0 + 3 * 0.01 and run.group.startswith("bottleneck-my-folder-")
