"""Claims, true, false and open: each outcome from numbers where it can be worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments.reporting.collect import collect
from attnlab.experiments.reporting.comparison import compare
from attnlab.experiments.reporting.verdict import REFUTED, SUPPORTED, UNDECIDED, Verdict, describe, judge
from tests.experiments.synthetic import sweep

SCORES = {"a": (0.90, 0.92, 0.91, 0.94), "b": (0.50, 0.53, 0.50, 0.52), "c": (0.40, 0.44, 0.42, 0.41)}


def contrast(weights: dict[str, float], at_least: float = 0.0) -> dict[str, Any]:
    return {"weights": weights, "at_least": at_least}


def verdict(directory: Path, *contrasts: dict[str, Any], scores: dict[str, tuple[float, ...]] = SCORES, **changes: Any) -> Verdict:
    claim = {"statement": "It is so.", "contrasts": list(contrasts)}
    found = judge(compare(collect(sweep(directory, scores, claim=claim, **changes))), claim)
    assert found is not None
    return found


@pytest.mark.quick
@pytest.mark.parametrize(
    ("weights", "at_least", "outcome"),
    [
        ({"a": 1.0, "b": -1.0}, 0.0, SUPPORTED),
        ({"a": 1.0, "b": -1.0}, 0.35, SUPPORTED),
        ({"a": 1.0, "b": -1.0}, 0.40, UNDECIDED),
        ({"a": 1.0, "b": -1.0}, 0.50, REFUTED),
        ({"b": 1.0, "a": -1.0}, 0.0, REFUTED),  # a false claim
        ({"a": 1.0, "b": -2.0, "c": 1.0}, 0.25, SUPPORTED),  # a difference of differences: (a - b) - (b - c)
        ({"a": 1.0, "b": -2.0, "c": 1.0}, 0.9, REFUTED),
    ],
)
def test_outcomes(tmp_path: Path, weights: dict[str, float], at_least: float, outcome: str) -> None:
    found = verdict(tmp_path, contrast(weights, at_least))
    assert (found.outcome, found.contrasts[0].outcome) == (outcome, outcome)
    values = sum(weight * np.array(SCORES[variant]) for variant, weight in weights.items())
    interval = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.contrasts[0].interval == pytest.approx((interval.low, interval.high)) and found.contrasts[0].level == 0.95
    assert found.contrasts[0].mean == pytest.approx(np.mean(values))
    assert found.sentence.startswith("undecided at 4 seeds: the interval includes 0.4" if outcome == UNDECIDED else f"{outcome} (4 seeds)")


@pytest.mark.quick
def test_a_claim_needs_all_its_contrasts_and_falls_with_any(tmp_path: Path) -> None:
    true, false, open_ = contrast({"a": 1, "b": -1}), contrast({"b": 1, "a": -1}), contrast({"a": 1, "b": -1}, 0.40)
    assert verdict(tmp_path / "1", true, contrast({"b": 1, "c": -1})).outcome == SUPPORTED
    assert verdict(tmp_path / "2", true, open_).outcome == UNDECIDED
    assert verdict(tmp_path / "3", true, open_, false).outcome == REFUTED


def test_several_contrasts_have_wider_intervals(tmp_path: Path) -> None:
    """Bonferroni: two contrasts are each judged at 97.5 %, which leaves open what one alone would have decided."""
    values = np.subtract(SCORES["a"], SCORES["b"])
    low = [float(stats.ttest_1samp(values, 0.0).confidence_interval(level).low) for level in (0.95, 0.975)]
    bound = sum(low) / 2
    one = contrast({"a": 1, "b": -1}, bound)
    assert verdict(tmp_path / "one", one).outcome == SUPPORTED
    both = verdict(tmp_path / "both", one, contrast({"a": 1, "c": -1}))
    assert [found.outcome for found in both.contrasts] == [UNDECIDED, SUPPORTED] and both.contrasts[0].level == 0.975
    assert both.contrasts[0].interval is not None and both.contrasts[0].interval[0] == pytest.approx(low[1])


def test_an_interval_that_ends_at_the_bound_does_not_support(tmp_path: Path) -> None:
    found = verdict(tmp_path / "probe", contrast({"a": 1, "b": -1})).contrasts[0].interval
    assert found is not None
    assert verdict(tmp_path / "high", contrast({"a": 1, "b": -1}, found[1])).outcome == REFUTED
    assert verdict(tmp_path / "low", contrast({"a": 1, "b": -1}, found[0])).outcome == UNDECIDED


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"a": (0.9,), "b": (0.1,)}, "undecided at 1 seed: one seed has no interval"),
        ({"a": (1.0, 1.0, 1.0), "b": (0.0, 0.0, 0.0)}, "undecided at 3 seeds: every seed gave the same difference"),
        ({"a": (0.9, math.nan, 0.8), "b": (0.1, 0.2, 0.3)}, "undecided at 2 seeds: not every seed has a number (a: seed 1 diverged)"),
    ],
)
def test_what_the_seeds_cannot_say_stays_open(tmp_path: Path, scores: dict[str, tuple[float, ...]], words: str) -> None:
    found = verdict(tmp_path, contrast({"a": 1, "b": -1}), scores=scores)
    assert found.outcome == UNDECIDED and found.sentence.startswith(words)


def test_nothing_is_judged_before_the_test_split_is_scored(tmp_path: Path) -> None:
    found = verdict(tmp_path, contrast({"a": 1, "b": -1}), final=False)
    assert found.outcome == UNDECIDED and found.sentence == "undecided: the test split is not scored yet"
    assert judge(compare(collect(tmp_path)), None) is None


def test_contrasts_in_words() -> None:
    assert describe({"a": 1.0, "b": -1.0}, 0.05) == "a - b >= 0.05"
    assert describe({"b": -1.0, "a": 0.5, "c": 0.5}, 0) == "mean(a, c) - b >= 0"
    assert describe({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": -0.5, "e": -0.5}, 0) == "mean(a, b, c) - mean(d, e) >= 0"
    assert describe({"a": 0.5, "b": -0.5}, 0) == "0.5 x a - 0.5 x b >= 0"
    assert describe({"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}, 0) == "a + d - b - c >= 0"
    assert describe({"a": -1.0, "b": -0.25}, -2) == "- a - 0.25 x b >= -2"
