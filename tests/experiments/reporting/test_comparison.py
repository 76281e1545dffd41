"""Rows, differences and the best variant, from folders with known numbers, against scipy."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments.reporting.collect import collect
from attnlab.experiments.reporting.comparison import Basis, Comparison, compare
from tests.experiments.synthetic import SCORES, lines, sweep, workdir, write

CLEAR = {"a": (0.90, 0.92, 0.91, 0.93), "b": (0.50, 0.53, 0.51, 0.52), "c": (0.40, 0.44, 0.41, 0.43)}


def compared(directory: Path, scores: dict[str, tuple[float, ...]], method: str = "t", **changes: object) -> Comparison:
    return compare(collect(sweep(directory, scores, **changes)), method)


@pytest.mark.quick
def test_differences_to_the_baseline_are_those_of_scipy(tmp_path: Path) -> None:
    """Mean, interval and p of each pairing; Holm over the two comparisons: the smaller p doubled, the larger as it is."""
    comparison = compare(collect(sweep(tmp_path)))
    assert comparison.basis == Basis("test", "exact", "max") and comparison.frozen
    base, *others = comparison.rows
    assert base.difference is None and base.values == dict(enumerate(SCORES["additive"]))
    tests = [stats.ttest_rel(SCORES[row.name], SCORES["additive"]) for row in others]
    order = np.argsort([test.pvalue for test in tests])
    expected = [test.pvalue * (2 if place == order[0] else 1) for place, test in enumerate(tests)]
    for row, test, adjusted in zip(others, tests, expected, strict=True):
        assert row.difference is not None and row.difference.n == 4
        assert row.difference.mean == pytest.approx(np.mean(SCORES[row.name]) - np.mean(SCORES["additive"]))
        assert row.difference.interval == pytest.approx(tuple(test.confidence_interval(0.95)), rel=1e-9)
        assert row.difference.p == pytest.approx(adjusted, rel=1e-9)
    assert base.pace == (pytest.approx(0.025), 1) and base.peak == (300 * 2**20 + 3, 1)


@pytest.mark.quick
def test_the_best_is_marked_only_where_the_seeds_cannot_explain_it(tmp_path: Path) -> None:
    assert [row.name for row in compared(tmp_path / "clear", CLEAR).rows if row.best] == ["a"]
    assert [row.name for row in compared(tmp_path / "min", CLEAR, measure={"metric": "exact", "mode": "min"}).rows if row.best] == ["c"]
    assert [row.name for row in compared(tmp_path / "overlap", dict(SCORES)).rows if row.best] == []
    apart = {"a": (0.90, 0.95), "b": (0.50, 0.53)}  # far apart, but intervals of two seeds are as wide as the sea
    assert [row.name for row in compared(tmp_path / "two", apart).rows if row.best] == []
    close = {"a": (0.90, 0.92, 0.91, 0.93), "b": (0.89, 0.91, 0.901, 0.92)}  # paired p < 0.05, but the intervals overlap
    comparison = compared(tmp_path / "close", close)
    assert stats.ttest_rel(close["a"], close["b"]).pvalue < 0.05 and [row.name for row in comparison.rows if row.best] == []


def test_a_row_without_spread_may_lose_but_not_decide(tmp_path: Path) -> None:
    """A variant that gets nothing right with any seed does not hide the winner; where no row has spread there is none."""
    assert [row.best for row in compared(tmp_path / "zero", {"a": (0.90, 0.92, 0.91), "b": (0.0, 0.0, 0.0)}).rows] == [True, False]
    assert [row.best for row in compared(tmp_path / "inside", {"a": (0.90, 0.92, 0.91), "b": (0.89, 0.89, 0.89)}).rows] == [False, False]
    assert [row.best for row in compared(tmp_path / "none", {"a": (1.0, 1.0, 1.0), "b": (0.0, 0.0, 0.0)}).rows] == [False, False]


def test_intervals_apart_are_not_enough(tmp_path: Path) -> None:
    """All pairs count in Holm: with six like rivals a p value of 0.004 no longer marks a winner."""
    one, other = (0.90, 0.92, 0.94), (0.60, 0.66, 0.70)
    rivals = {f"r{number}": tuple(value + 0.001 * number for value in other) for number in range(6)}
    p = stats.ttest_rel(one, other).pvalue
    assert 0.05 / 21 < p < 0.05 / 6 and [row.best for row in compared(tmp_path / "pair", {"a": one, "b": other}).rows] == [True, False]
    comparison = compared(tmp_path / "many", {"a": one, **rivals})
    assert not any(row.best for row in comparison.rows)
    first, *others = (row.summary.interval for row in comparison.rows)
    assert first is not None and all(other is not None and other[1] < first[0] for other in others)


@pytest.mark.quick
def test_one_seed_has_no_interval_and_no_winner(tmp_path: Path) -> None:
    for method in ("t", "bootstrap"):
        comparison = compared(tmp_path / method, {"a": (0.9,), "b": (0.1,)}, method)
        for row in comparison.rows:
            assert row.summary.interval is None and not row.best and row.summary.mean is not None
        difference = comparison.rows[1].difference
        assert difference is not None and (difference.n, difference.interval, difference.p, difference.effect) == (1, None, None, None)


def test_bootstrap_changes_the_intervals_and_not_the_tests(tmp_path: Path) -> None:
    student, other = compared(tmp_path / "t", CLEAR), compared(tmp_path / "b", CLEAR, "bootstrap")
    for one, two in zip(student.rows, other.rows, strict=True):
        assert one.summary.interval != two.summary.interval and one.summary.mean == two.summary.mean
        assert (one.difference and one.difference.p) == (two.difference and two.difference.p)


def test_a_lost_seed_is_named_and_bars_the_winner(tmp_path: Path) -> None:
    """A variant that diverged once is not best on what is left, and is paired on what is left."""
    comparison = compared(tmp_path, {**CLEAR, "a": (0.90, 0.92, math.nan, 0.93)})
    first = comparison.rows[0]
    assert first.missing == ("seed 2 diverged",) and first.summary.n == 3 and not any(row.best for row in comparison.rows)
    difference, kept = comparison.rows[1].difference, [0, 1, 3]
    test = stats.ttest_rel(*([CLEAR[name][seed] for seed in kept] for name in ("b", "a")))  # seed with seed, whatever its place
    assert difference is not None and difference.n == 3
    assert difference.mean == pytest.approx(np.mean([CLEAR["b"][seed] - CLEAR["a"][seed] for seed in kept]))
    assert difference.interval == pytest.approx(tuple(test.confidence_interval(0.95)), rel=1e-9)


def test_pace_is_the_median_of_the_trials_and_peak_their_largest(tmp_path: Path) -> None:
    """One trial that shared its machine moves neither; the one of most memory need not be the last."""
    directory = sweep(tmp_path, {"a": (0.9, 0.92, 0.91), "b": (0.8, 0.82, 0.81)})
    slow = workdir(directory, "a", 0)
    lines(slow / "timing.jsonl", [{"step": step, "time": 100.0, "step_seconds": 5.0} for step in (3, 6, 9, 12)])
    events = [json.loads(line) for line in (slow / "attempts.jsonl").read_text().splitlines()]
    lines(slow / "attempts.jsonl", [events[0], {**events[1], "peak_bytes": 7 * 2**30}])
    row = compare(collect(directory)).rows[0]
    assert row.pace == (pytest.approx(0.03), 1) and row.peak == (7 * 2**30, 1)  # medians 5.0, 0.02, 0.03


def test_why_a_finished_seed_has_no_number(tmp_path: Path) -> None:
    directory = sweep(tmp_path, CLEAR)
    write(workdir(directory, "a", 0) / "results.json", {"exact": math.inf, "loss": 1.0})
    (workdir(directory, "a", 1) / "results.json").unlink()
    assert compare(collect(directory)).rows[0].missing == ("seed 0 has no finite exact", "seed 1 not scored yet")


def test_a_variant_of_which_nothing_came_through_keeps_its_row(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {**CLEAR, "b": (math.nan,) * 4})
    choice = json.loads((directory / "choice.json").read_text())
    choice["chosen"]["b"]["candidate"] = None
    write(directory / "choice.json", choice)
    row = compare(collect(directory)).rows[1]
    assert (row.name, row.summary.n, row.summary.mean, row.difference) == ("b", 0, None, None) and len(row.missing) == 4


@pytest.mark.quick
def test_before_the_choice_candidates_stand_on_validation_without_tests(tmp_path: Path) -> None:
    comparison = compared(tmp_path, CLEAR, final=False, tuned={0.001: 0.5, 0.003: 0.0})
    assert comparison.basis == Basis("valid", "loss", "min") and not comparison.frozen
    assert [row.name for row in comparison.rows][:2] == ["a (peak=0.001)", "a (peak=0.003)"] and len(comparison.rows) == 6
    assert not any(row.difference or row.best for row in comparison.rows)
    assert comparison.rows[0].summary.mean == pytest.approx(2.5 - np.mean(CLEAR["a"]))


def test_frozen_but_not_scored_stands_on_validation_too(tmp_path: Path) -> None:
    directory = sweep(tmp_path, CLEAR)
    for variant in CLEAR:
        for seed in range(4):
            (workdir(directory, variant, seed) / "results.json").unlink()
    comparison = compare(collect(directory))
    assert comparison.basis.split == "valid" and comparison.frozen and not any(row.difference or row.best for row in comparison.rows)


def test_scores_without_a_frozen_choice_are_not_looked_at(tmp_path: Path) -> None:
    directory = sweep(tmp_path, CLEAR)
    (directory / "choice.json").unlink()
    comparison = compare(collect(directory))
    assert comparison.basis == Basis("valid", "loss", "min") and not any(row.difference or row.best for row in comparison.rows)


def test_the_chosen_candidate_stands_for_its_variant(tmp_path: Path) -> None:
    comparison = compared(tmp_path, CLEAR, tuned={0.001: 0.5, 0.003: 0.0})
    assert [(row.name, row.candidate.tuned) for row in comparison.rows] == [(name, {"schedule.peak": 0.003}) for name in CLEAR]
