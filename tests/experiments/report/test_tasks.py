"""The report over tasks: ranks with intervals, as counted by hand, and the files beside those of the
tasks; and the page's experiment, shrunk, from its sweep on.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.plan import Plan
from attnlab.experiments.report.statistics.family import Family
from attnlab.experiments.report.tasks import ranked, write_over_tasks
from tests.commands.tiny import run_command
from tests.experiments import real
from tests.experiments.plans import BASE
from tests.experiments.synthetic import APART, STEPS, sweep, write

PAGE = real.ROOT / "docs" / "extending" / "experiment.md"
NOISE = {name: dict(enumerate(own)) for name, own in APART.items()}
SIMILAR = {"a": (0.5, 0.6, 0.55, 0.48), "b": (0.52, 0.57, 0.56, 0.5), "c": (1.5, 1.6, 1.5, 1.4)}
CLOSE = {name: dict(enumerate(own)) for name, own in SIMILAR.items()}
"""Of which less is better: a and b are told from c."""


def over(directory: Path, **changes: Any) -> Path:
    """Two tasks: on both a is ahead of b and of c, the second measures less where that is better."""
    sweep(directory / "first", APART)
    lower = {name: [1 - value for value in own] for name, own in APART.items()}
    measure = {"metric": "exact", "mode": "min"}
    sweep(directory / "second", lower, measure=measure, **changes)
    stated = {"version": 2, "question": "Why?", "tasks": ["first", "second"]}
    write(directory / "tasks.json", stated)
    return directory


def test_ranks_are_those_of_means_and_bounds_come_from_who_is_better_for_certain() -> None:
    """Counted by hand."""
    tied = Family({"a": {0: 1, 1: 3}, "b": {0: 3, 1: 1}, "c": {0: 0, 1: 1}})
    assert tied.ranks() == {"a": 1.5, "b": 1.5, "c": 3}
    tasks = {"one": Family(NOISE), "two": Family(CLOSE, "min")}
    a, b, c = ranked(tasks, ["a", "b", "c"], {"one": (), "two": ()})
    assert a.better == {"b": ["one"], "c": ["one", "two"]} and b.better == {"c": ["one", "two"]}
    assert [of.interval for of in (a, b, c)] == [(1, 1.5), (1.5, 2), (3, 3)] and not c.better
    assert [of.mean_rank for of in (a, b, c)] == [1, 2, 3]
    a, b, c = ranked(tasks, ["a", "b", "c"], {"one": ("b",), "two": ()})  # b lacks a seed
    assert [of.interval for of in (a, b, c)] == [(1, 2), (1, 2.5), (2.5, 3)]


def test_the_level_is_shared_by_the_tasks() -> None:
    """A difference that one task alone would have told."""
    family = Family({"a": {0: 0.0, 1: 0.1, 2: 0.2}, "b": {0: 0.21, 1: 0.5, 2: 0.62}})
    (gap,) = family.pairs().values()
    assert gap.p is not None and 0.025 < gap.p < 0.05 and family.better() == {("b", "a")}
    both = {"x": family, "y": family}
    assert not ranked(both, ["a", "b"], {"x": (), "y": ()})[1].better


def test_a_report_over_tasks_stands_beside_theirs(tmp_path: Path) -> None:
    shown = run_command(["report", str(over(tmp_path))])
    assert shown.code == 0, shown.err
    assert "first: exact, higher is better" in shown.out and "second: exact, lower" in shown.out
    report = json.loads((tmp_path / "report.json").read_text())
    assert [row["mean_rank"] for row in report["rows"]] == [1, 2, 3]
    assert report["rows"][0]["better"] == {"b": ["first", "second"], "c": ["first", "second"]}
    assert {trial["task"] for trial in report["trials"]} == {"first", "second"}
    assert "b (first, second); c (first, second)" in (tmp_path / "report.md").read_text()
    assert 'href="second/report.html"' in (tmp_path / "report.html").read_text()
    assert "of several tasks name the folder of one" in run_command(["status", str(tmp_path)]).err


def test_a_task_without_scores_tells_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    over(tmp_path, final=False)
    write_over_tasks(tmp_path)
    rows = json.loads((tmp_path / "report.json").read_text())["rows"]
    assert [row["mean_rank"] for row in rows] == [None] * 3
    assert [row["interval"] for row in rows] == [[1, 2], [1.5, 2.5], [2, 3]]
    assert "second: 3 variants" in capsys.readouterr().out


@pytest.mark.full
def test_the_experiment_of_the_page_runs_on_both_tasks(tmp_path: Path) -> None:
    (text,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    (tmp_path / "over_tasks.py").write_text(text)
    small = {"training.steps": STEPS, "training.evaluate_every": 6, "schedule.warmup": 2, **BASE}
    changes = [f"--config.{key}={value}" for key, value in small.items() if "attention" not in key]
    done = real.launch("sweep", "over_tasks.py", "--dir=over", "--seeds=1", *changes, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    plans = [Plan.of_sweep(tmp_path / "over" / task) for task in ("dates", "sounds")]
    assert [plan.measure["metric"] for plan in plans] == ["exact", "phoneme_error_rate"]
    assert "sounds: phoneme_error_rate, lower is better" in done.stdout
