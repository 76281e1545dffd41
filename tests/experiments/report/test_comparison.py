"""Rows, differences and the best variant, from folders with known numbers, against scipy."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.comparison import Basis, Comparison, compare
from attnlab.experiments.report.statistics.family import Family
from attnlab.experiments.report.statistics.scale import Scale
from tests.experiments.report.tabled import compared
from tests.experiments.synthetic import SCORES, changing, lines, scored_on, sweep, workdir, write

CLEAR = {
    "a": (0.90, 0.92, 0.91, 0.93),
    "b": (0.50, 0.53, 0.51, 0.52),
    "c": (0.40, 0.44, 0.41, 0.43),
}


def best(comparison: Comparison) -> list[str]:
    """The variants that are marked as the best."""
    return [row.name for row in comparison.rows if row.best]


@pytest.mark.quick
def test_differences_to_the_baseline_are_those_of_the_family(tmp_path: Path) -> None:
    """Of the values of all variants by seed; `statistics/test_family.py` has them against scipy."""
    scores = {
        "a": (0.90, 0.92, 0.91, 0.94),
        "b": (0.89, 0.91, 0.93, 0.88),
        "c": (0.80, 0.79, 0.83, 0.81),
    }
    comparison = compared(tmp_path, scores)
    assert comparison.basis == Basis("test", "exact", "max") and comparison.frozen
    assert comparison.family.model.kind == "blocked"
    base, *others = comparison.rows
    assert base.difference is None and base.values == dict(enumerate(scores["a"]))
    values = {name: dict(enumerate(row)) for name, row in scores.items()}
    assert {row.name: row.difference for row in others} == Family(values).against("a")
    assert [row.shared for row in others] == [4, 4]
    gap = np.mean(scores["b"]) - np.mean(scores["a"])
    assert others[0].difference.mean == pytest.approx(gap)
    assert base.pace == (pytest.approx(0.025), 1) and base.peak == (300 * 2**20 + 3, 1)


@pytest.mark.quick
def test_the_best_is_marked_only_where_the_seeds_cannot_explain_it(tmp_path: Path) -> None:
    assert best(compared(tmp_path / "clear", CLEAR)) == ["a"]
    least = {"metric": "exact", "mode": "min"}
    assert best(compared(tmp_path / "min", CLEAR, measure=least)) == ["c"]
    assert best(compared(tmp_path / "overlap", dict(SCORES))) == []
    # all variants tell of one spread, so two seeds can be enough
    apart = {"a": (0.90, 0.95), "b": (0.50, 0.53)}
    assert best(compared(tmp_path / "two", apart)) == ["a"]
    close = {"a": (0.90, 0.92, 0.91, 0.93), "b": (0.89, 0.91, 0.92, 0.93)}
    assert best(compared(tmp_path / "close", close)) == []


def test_a_row_without_spread_may_lose_but_not_decide(tmp_path: Path) -> None:
    """A variant that gets nothing right with any seed does not hide the winner; where no row has
    spread there is none.
    """
    zero = {"a": (0.90, 0.92, 0.91), "b": (0.0, 0.0, 0.0)}
    assert best(compared(tmp_path / "zero", zero)) == ["a"]
    assert best(compared(tmp_path / "none", {"a": (1.0, 1.0, 1.0), "b": (0.0, 0.0, 0.0)})) == []


def test_where_examples_are_counted_seeds_that_agree_decide(tmp_path: Path) -> None:
    """1.0 three times against 0.2 three times: a share of 100 examples varies at least as drawing
    100 does, and stays in [0, 1].
    """
    directory = sweep(tmp_path, {"a": (1.0, 1.0, 1.0), "b": (0.2, 0.2, 0.2)})
    scored_on(directory, a=100, b=100)
    comparison = compare(collect(directory))
    first, second = comparison.rows
    assert comparison.basis.scale == Scale(0.0, 1.0, 100) and first.best and not second.best
    assert 0.94 < first.summary.interval[0] < first.summary.interval[1] <= 1.0
    assert second.difference is not None and second.difference.p is not None
    assert second.difference.p < 1e-3


def test_a_seed_that_lies_apart_is_named(tmp_path: Path) -> None:
    """Four runs near 0.92 and one at 0.5 are no spread; they are a run that failed without
    saying so.
    """
    scores = {"a": (0.92, 0.91, 0.5, 0.93, 0.92), "b": (0.90, 0.91, 0.92, 0.90, 0.91)}
    rows = compared(tmp_path, scores).rows
    assert [row.outlying for row in rows] == [(2,), ()]


def test_bootstrap_changes_the_intervals_and_not_the_tests(tmp_path: Path) -> None:
    student, other = compared(tmp_path / "t", CLEAR), compared(tmp_path / "b", CLEAR, "bootstrap")
    for one, two in zip(student.rows, other.rows, strict=True):
        assert one.summary.interval != two.summary.interval and one.summary.mean == two.summary.mean
        assert (one.difference and one.difference.p) == (two.difference and two.difference.p)


def test_a_lost_seed_is_named_and_bars_the_winner(tmp_path: Path) -> None:
    """A variant that diverged once is not best on what is left, and is paired on what is left."""
    comparison = compared(tmp_path, {**CLEAR, "a": (0.90, 0.92, math.nan, 0.93)})
    first = comparison.rows[0]
    assert first.missing == ("seed 2 diverged",) and first.summary.n == 3
    assert not any(row.best for row in comparison.rows)
    difference = comparison.rows[1].difference
    assert difference is not None and comparison.rows[1].shared == 3
    expected = np.mean(CLEAR["b"]) - np.mean([0.90, 0.92, 0.93])
    assert difference.mean == pytest.approx(expected, abs=0.01)
    assert difference.interval[0] < -0.39 < difference.interval[1]


def test_pace_is_the_median_of_the_trials_and_peak_their_largest(tmp_path: Path) -> None:
    """One trial that shared its machine moves neither; the one of most memory need not be the
    last.
    """
    directory = sweep(tmp_path, {"a": (0.9, 0.92, 0.91), "b": (0.8, 0.82, 0.81)})
    slow = workdir(directory, "a", 0)
    pace = [{"step": step, "time": 100.0, "step_seconds": 5.0} for step in (3, 6, 9, 12)]
    lines(slow / "timing.jsonl", pace)
    events = [json.loads(line) for line in (slow / "events.jsonl").read_text().splitlines()]
    lines(slow / "events.jsonl", [events[0], {**events[1], "peak_bytes": 7 * 2**30}])
    row = compare(collect(directory)).rows[0]
    # medians 5.0, 0.02, 0.03
    assert row.pace == (pytest.approx(0.03), 1) and row.peak == (7 * 2**30, 1)


@pytest.mark.parametrize("score", [math.inf, 1.7e308, -1e160, 1e77])
def test_why_a_finished_seed_has_no_number(score: float, tmp_path: Path) -> None:
    directory = sweep(tmp_path, CLEAR)
    write(workdir(directory, "a", 0) / "results.json", {"exact": score, "loss": 1.0})
    (workdir(directory, "a", 1) / "results.json").unlink()
    expected = ("seed 0 has no finite exact up to 1e+60", "seed 1 not scored yet")
    assert compare(collect(directory)).rows[0].missing == expected


def test_a_variant_of_which_nothing_came_through_keeps_its_row(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {**CLEAR, "b": (math.nan,) * 4})
    with changing(directory / "choice.json") as choice:
        choice["chosen"]["b"] = {"candidate": None}
    row = compare(collect(directory)).rows[1]
    assert (row.name, row.summary.n, row.summary.mean, row.difference) == ("b", 0, None, None)
    assert len(row.missing) == 4


@pytest.mark.quick
def test_before_the_choice_candidates_stand_on_validation_without_tests(tmp_path: Path) -> None:
    comparison = compared(tmp_path, CLEAR, final=False, tuned={0.001: 0.5, 0.003: 0.0})
    assert comparison.basis == Basis("valid", "loss", "min") and not comparison.frozen
    assert [row.name for row in comparison.rows][:2] == ["a (peak=0.001)", "a (peak=0.003)"]
    assert len(comparison.rows) == 6
    assert not any(row.difference or row.best for row in comparison.rows)
    assert comparison.rows[0].summary.mean == pytest.approx(2.5 - np.mean(CLEAR["a"]))


@pytest.mark.parametrize("removed", ["choice.json", "results.json"])
def test_before_choice_and_test_scores_validation_is_compared(tmp_path: Path, removed: str) -> None:
    for path in sweep(tmp_path, CLEAR).rglob(removed):
        path.unlink()
    comparison = compare(collect(tmp_path))
    assert comparison.basis == Basis("valid", "loss", "min")
    assert comparison.frozen == (removed == "results.json")
    assert not any(row.difference or row.best for row in comparison.rows)


def test_variants_of_other_test_data_leave_the_others_alone(tmp_path: Path) -> None:
    """What is said of those that share the baseline's examples is what would be said without the
    rest.
    """
    scores = {"a": (0.90, 0.92, 0.91), "b": (0.88, 0.87, 0.885), "c": (0.2, 0.9, 0.4)}
    counts = {"a": 10_000, "b": 10_000, "c": 50}

    def made(name: str, *variants: str) -> Comparison:
        data = {variant: "t" if variant != "c" else "u" for variant in variants}
        some = {variant: scores[variant] for variant in variants}
        directory = sweep(tmp_path / name, some, test_data=data)
        scored_on(directory, **counts)
        return compare(collect(directory))

    whole, part = made("whole", "a", "b", "c"), made("part", "a", "b")
    assert whole.rows[1].difference == part.rows[1].difference and whole.basis.scale.count == 10_000
    assert [row.summary for row in whole.rows[:2]] == [row.summary for row in part.rows]
    assert whole.rows[2].difference is None and whole.rows[2].summary.mean == pytest.approx(0.5)


def test_a_mean_is_that_of_the_seeds_that_are_there(tmp_path: Path) -> None:
    """With seeds as a block least squares would adjust it for those that are missing, beyond what a
    share can be.
    """
    scores = {
        "a": (0.90, 0.95, 0.80, 0.96, 0.85),
        "b": (0.88, 0.93, 0.78, 0.94, 0.83),
        "c": (math.nan, 0.955, math.nan, 0.959, math.nan),
    }
    comparison = compared(tmp_path, scores)
    row = comparison.rows[2]
    assert comparison.family.model.kind == "blocked" and row.summary.mean == pytest.approx(0.957)
    assert row.summary.interval[0] < 0.94 < 0.97 < row.summary.interval[1]
