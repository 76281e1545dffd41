"""Test-set sampling against the closed form for means, and with a score that is no mean."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from attnlab.experiments.report.statistics.items import compare

RNG = np.random.default_rng(13)


def test_the_bootstrap_of_a_mean_has_its_standard_error() -> None:
    one, other = (RNG.random((1, 400)) < np.array([[0.8], [0.7]])[:, None, :]).astype(float)
    found = compare(one, other)
    difference = one[0] - other[0]
    half = 1.96 * difference.std() / math.sqrt(400)
    assert found.difference == pytest.approx(difference.mean())
    assert found.interval == pytest.approx(
        (difference.mean() - half, difference.mean() + half), abs=0.15 * half
    )


def test_randomisation_is_the_exact_permutation_test() -> None:
    """All 2^8 exchanges of eight examples."""
    one, other = RNG.normal(0.8, 1, (1, 8)), RNG.normal(0, 1, (1, 8))
    difference = (one - other)[0]
    every = [abs(np.mean(difference * signs)) for signs in itertools.product((1, -1), repeat=8)]
    exact = np.mean(np.array(every) >= abs(difference.mean()) - 1e-12)
    assert compare(one, other, resamples=8000).p == pytest.approx(exact, abs=0.02)


def test_seeds_are_averaged_and_examples_stay_together() -> None:
    one, other = RNG.normal(size=(3, 50)), RNG.normal(size=(3, 50))
    each, mean = compare(one, other), compare(one.mean(0)[None], other.mean(0)[None])
    assert (each.difference, *each.interval, each.p) == pytest.approx(
        (mean.difference, *mean.interval, mean.p)
    ), "all the same for a mean"


def test_a_score_of_sums_and_the_same_result_again() -> None:
    """Precision: correct over proposed, whose mean over examples is another number."""

    def precision(total: Any, items: int) -> float:
        return float(total[0] / total[1])

    proposed = RNG.integers(1, 9, (2, 60))
    good = np.stack([RNG.binomial(proposed, 0.9), proposed], -1)
    bad = np.stack([RNG.binomial(proposed, 0.4), proposed], -1)
    found = compare(good, bad, precision, resamples=300)
    assert found == compare(good, bad, precision, resamples=300)
    assert found != compare(good, bad, precision, resamples=300, seed=1)
    sums = [(one[..., 0].sum(1) / one[..., 1].sum(1)) for one in (good, bad)]
    expected = np.mean(sums[0] - sums[1])
    assert found.difference == pytest.approx(expected) and found.interval[0] > 0
    assert found.p == pytest.approx(1 / 301)


def test_equal_systems_have_no_difference() -> None:
    one = RNG.normal(size=(1, 20))
    found = compare(one, one, resamples=200)
    assert (found.difference, found.interval, found.p) == (0.0, (0.0, 0.0), 1.0)


def test_other_examples_are_refused() -> None:
    with pytest.raises(ValueError, match="same test examples"):
        compare(np.ones((1, 3)), np.ones((1, 4)))
    with pytest.raises(ValueError, match="at least one"):
        compare(np.ones((1, 0)), np.ones((1, 0)))
