"""Claims, true, false and open: each outcome from numbers where it can be worked out by hand."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments import Claim, better
from attnlab.experiments.report.statistics.family import REFUTED, SUPPORTED, UNDECIDED
from attnlab.experiments.report.verdict import Verdict, describe, judge
from tests.experiments.plans import defined
from tests.experiments.report.tabled import compared
from tests.experiments.synthetic import APART as SCORES
from tests.experiments.synthetic import Scores


def contrast(weights: dict[str, float], at_least: float = 0.0) -> dict[str, Any]:
    return {"weights": weights, "at_least": at_least}


def verdict(
    directory: Path, *contrasts: dict[str, Any], scores: Scores = SCORES, **changes: Any
) -> Verdict:
    claim = {"statement": "It is so.", "contrasts": list(contrasts)}
    found = judge(compared(directory, scores, claim=claim, **changes), claim)
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
        # a difference of differences: (a - b) - (b - c)
        ({"a": 1.0, "b": -2.0, "c": 1.0}, 0.25, SUPPORTED),
        ({"a": 1.0, "b": -2.0, "c": 1.0}, 0.9, REFUTED),
    ],
)
def test_outcomes(tmp_path: Path, weights: dict[str, float], at_least: float, outcome: str) -> None:
    found = verdict(tmp_path, contrast(weights, at_least))
    assert (found.outcome, found.contrasts[0].outcome) == (outcome, outcome)
    # one for all, of what is left of variants and seeds: 2 x 3 degrees of freedom
    scores = np.array(list(SCORES.values()))
    left = scores - scores.mean(1, keepdims=True) - scores.mean(0) + scores.mean()
    variance = (left**2).sum() / 6
    mean = sum(weight * np.mean(SCORES[variant]) for variant, weight in weights.items())
    squares = sum(weight**2 for weight in weights.values())
    reach = stats.t.ppf(0.95, 6) * math.sqrt(variance * squares / 4)
    decision = found.contrasts[0].found
    assert decision is not None and decision.mean == pytest.approx(mean)
    assert decision.lower == pytest.approx(mean - reach)
    assert decision.upper == pytest.approx(mean + reach)
    words = "undecided at 4 seeds: the bounds lie on either side of 0.4 (4 seeds find 0.0"
    assert found.sentence.startswith(words if outcome == UNDECIDED else f"{outcome} (4 seeds)")


def test_what_better_says_of_a_loss_is_judged_and_told_the_right_way(tmp_path: Path) -> None:
    """`a` has the lower loss by 0.5: the file says "a better than b", and that is supported."""
    measure = ("loss", "min")
    contrasts = better("additive", "general", by=0.3), better("general", "additive")
    stated = Claim("It is so.", contrasts)
    claim = defined(claim=stated, measure=measure)["claim"]
    # losses are 2.05 minus these
    scores = {"additive": (0.9, 0.92, 0.91), "general": (0.4, 0.44, 0.41)}
    plan = {"claim": claim, "measure": {"metric": "loss", "mode": "min"}}
    found = judge(compared(tmp_path, scores, **plan), claim)
    assert found is not None and [one.outcome for one in found.contrasts] == [SUPPORTED, REFUTED]
    words = "additive better than general by 0.3: general - additive >= 0.3"
    assert found.contrasts[0].text == words


@pytest.mark.quick
def test_a_claim_needs_all_its_contrasts_and_falls_with_any(tmp_path: Path) -> None:
    true = contrast({"a": 1, "b": -1})
    false = contrast({"b": 1, "a": -1})
    open_ = contrast({"a": 1, "b": -1}, 0.40)
    assert verdict(tmp_path / "1", true, contrast({"b": 1, "c": -1})).outcome == SUPPORTED
    assert verdict(tmp_path / "2", true, open_).outcome == UNDECIDED
    assert verdict(tmp_path / "3", true, open_, false).outcome == REFUTED


def test_a_conjunction_costs_nothing_where_it_holds(tmp_path: Path) -> None:
    """What supports one contrast alone supports it in a claim of two; what refutes one alone,
    barely, does not in a claim of two.
    """
    probe = verdict(tmp_path / "probe", contrast({"a": 1, "b": -1})).contrasts[0].found
    both = verdict(tmp_path / "two", contrast({"a": 1, "b": -1}), contrast({"a": 1, "c": -1}))
    two = both.contrasts[0].found
    assert probe is not None and two is not None and probe.lower == two.lower
    assert probe.upper is not None and two.upper is not None and probe.upper < two.upper
    sure = contrast({"a": 1, "c": -1})
    barely = contrast({"a": 1, "b": -1}, (probe.upper + two.upper) / 2)
    (alone,) = verdict(tmp_path / "alone", barely).contrasts
    assert (alone.outcome, alone.found.rests) == (REFUTED, "upper")
    assert verdict(tmp_path / "both", barely, sure).outcome == UNDECIDED


def test_an_undecided_claim_says_what_its_seeds_could_have_found(tmp_path: Path) -> None:
    scores = {"a": (0.50, 0.56, 0.53), "b": (0.51, 0.49, 0.55)}
    found = verdict(tmp_path, contrast({"a": 1, "b": -1}), scores=scores)
    power = found.contrasts[0].power
    assert power is not None and found.outcome == UNDECIDED and power.detectable > 0.0133
    assert power.needed is not None and power.needed > 3
    words = (
        f"(3 seeds find {power.detectable:.2g} with probability 0.8; what was seen would need about"
        f" {power.needed})"
    )
    assert found.sentence.endswith(words)


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ({"a": (0.9,), "b": (0.1,)}, "1 seed: one seed has no spread to judge by"),
        ({"a": (1.0,) * 3, "b": (0.0,) * 3}, "3 seeds: all seeds of all variants agree"),
        # sums of decimals are never quite equal: what is left of them decides nothing
        ({"a": (0.1 + 0.2, 0.4), "b": (0.3, 0.4)}, "2 seeds: the difference is 0 but for rounding"),
        ({"a": (0.9, math.nan), "b": (0.1, 0.2)}, "1 seed: not every seed has a number (a: seed 1"),
    ],
)
def test_what_the_seeds_cannot_say_stays_open(
    tmp_path: Path, scores: dict[str, tuple[float, ...]], words: str
) -> None:
    found = verdict(tmp_path, contrast({"a": 1, "b": -1}), scores=scores)
    assert found.outcome == UNDECIDED
    assert found.sentence.startswith(f"undecided at {words}")


def test_contrasts_in_words() -> None:
    assert describe({"a": 1.0, "b": -1.0}, 0.05) == "a - b >= 0.05"
    assert describe({"b": -1.0, "a": 0.5, "c": 0.5}, 0) == "mean(a, c) - b >= 0"
    words = "mean(a, b, c) - mean(d, e) >= 0"
    assert describe({"a": 1 / 3, "b": 1 / 3, "c": 1 / 3, "d": -0.5, "e": -0.5}, 0) == words
    assert describe({"a": 0.5, "b": -0.5}, 0) == "0.5 x a - 0.5 x b >= 0"
    assert describe({"a": 1.0, "b": -1.0, "c": -1.0, "d": 1.0}, 0) == "a + d - b - c >= 0"
    assert describe({"a": -1.0, "b": 1.0}, 0, "min") == "a better than b: b - a >= 0"
    assert describe({"a": -1.0, "b": 1.0}, -0.1, "min") == "a no worse than b by 0.1: b - a >= -0.1"
    assert describe({"a": -1.0, "b": -0.25}, -2) == "- a - 0.25 x b >= -2"
