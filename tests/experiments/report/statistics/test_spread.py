"""Quantiles, intervals by resampling, the size of an effect; seeds that lie apart."""

import math

import numpy as np
import pytest

from attnlab.experiments.report.statistics import spread
from attnlab.experiments.report.statistics.spread import apart, bootstrap_interval, effect_size

RNG = np.random.default_rng(7)
SEEDS_RNG = np.random.default_rng(2)


def test_bootstrap_is_the_same_every_time_and_stays_within_the_values() -> None:
    values = list(RNG.normal(0.8, 0.05, 6))
    low, high = bootstrap_interval(values) or (0.0, 0.0)
    assert (low, high) == bootstrap_interval(values)
    assert min(values) <= low < np.mean(values) < high <= max(values)
    assert bootstrap_interval([0.5, 0.5 + 1e-16, 0.5]) is None and bootstrap_interval([0.5]) is None


def test_effect_size_by_hand() -> None:
    correction = math.gamma(2) / (math.sqrt(2) * math.gamma(1.5))
    assert effect_size(0.3, 0.01, 4) == pytest.approx(3 * correction)
    assert effect_size(0.3, 0.01, 1) is None and effect_size(0.3, 0.0, 4) is None
    assert spread.deviation([1.0]) is None
    assert spread.deviation([1.0, 2.0]) == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([0.9, 0.91, 0.1], (2,)),
        ([0.9, 0.905, 0.91, 0.9, 0.1, 0.12], (4, 5)),
        ([0.9, 0.91, 0.92], ()),
        ([0.9, 0.1], ()),  # which of two failed?
        ([0.9, 0.9, 0.1, 0.1], ()),  # as many here as there
        ([1.0, 1.0, 1.0], ()),
        ([1.0, 1.0, 1.0 - 1e-12], ()),  # rounding
    ],
)
def test_the_smaller_side_of_a_gap_lies_apart(values: list[float], found: tuple[int, ...]) -> None:
    assert apart(dict(enumerate(values)), 0.01, 1e-9) == found


def test_the_spread_of_other_variants_keeps_three_close_values_from_accusing() -> None:
    values = {0: 0.9, 1: 0.9001, 2: 0.92}
    assert apart(values, 0.0, 1e-9) == (2,)
    assert apart(values, 0.01, 1e-9) == ()


def test_a_failed_seed_elsewhere_does_not_hide_one_here() -> None:
    assert spread.spread([0.9, 0.91, 0.92, 0.91, 0.1]) == pytest.approx(0.01 / 0.6745, rel=1e-4)
    assert spread.spread([0.9, 0.91, 0.92]) == pytest.approx(0.01)
    assert spread.typical([0.01, 0.46, 0.012]) == 0.012
    assert spread.typical([0.3]) == 0.3 and spread.typical([]) == 0.0


@pytest.mark.parametrize(
    ("seeds", "most", "least"), [(3, 0.02, 0.3), (5, 0.02, 0.7), (10, 0.02, 0.9)]
)
def test_false_alarms_are_rare_and_failures_are_seen(seeds: int, most: float, least: float) -> None:
    """Of normal values with a known spread, and with the first 12 standard deviations lower."""
    values = SEEDS_RNG.normal(size=(1000, seeds))
    assert np.mean([bool(apart(dict(enumerate(one)), 1.0, 0.0)) for one in values]) < most
    values[:, 0] -= 12
    assert np.mean([apart(dict(enumerate(one)), 1.0, 0.0) == (0,) for one in values]) > least
