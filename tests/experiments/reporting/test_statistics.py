"""Statistics over seeds, against scipy where it has the same and against numbers worked by hand where it has not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments.reporting.statistics import INTERVALS, bootstrap_interval, effect_size, holm, paired_p, spread, summary, t_interval

RNG = np.random.default_rng(7)
SAMPLES = [list(RNG.normal(0.8, 0.05, size)) for size in (2, 3, 5, 12)]


@pytest.mark.quick
@pytest.mark.parametrize("values", SAMPLES)
def test_t_interval_is_the_one_of_scipy(values: list[float]) -> None:
    """The interval that scipy's own t test gives, which we do not use to make it."""
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert t_interval(values) == pytest.approx((expected.low, expected.high), rel=1e-12)
    wider = t_interval(values, 0.99)
    assert wider is not None and wider[0] < expected.low and wider[1] > expected.high
    found = summary(values)
    assert (found.n, found.mean, found.std) == (len(values), pytest.approx(np.mean(values)), pytest.approx(np.std(values, ddof=1)))
    assert found.interval == t_interval(values)


def test_t_interval_by_hand() -> None:
    """1, 2, 3: mean 2, std 1, t(2) at 97.5 % = 4.302653."""
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 4.3026527 / math.sqrt(3), 2 + 4.3026527 / math.sqrt(3)), abs=1e-6)


def test_bootstrap_is_repeatable_inside_the_values_and_near_scipys_percentiles() -> None:
    values = SAMPLES[3]
    first, again = bootstrap_interval(values), bootstrap_interval(values)
    assert first == again and first is not None
    other = stats.bootstrap((values,), np.mean, n_resamples=4999, method="BCa", rng=np.random.default_rng(99)).confidence_interval
    assert first == pytest.approx((other.low, other.high), abs=0.2 * np.std(values))
    plain = stats.norm.interval(0.95, np.mean(values), np.std(values) / math.sqrt(len(values)))
    assert first == pytest.approx(plain, abs=0.3 * np.std(values))
    for few in SAMPLES[:2]:
        found = bootstrap_interval(few)
        assert found is not None and min(few) <= found[0] < found[1] <= max(few)


@pytest.mark.quick
@pytest.mark.parametrize("size", [2, 3, 5, 12])
def test_paired_test_is_the_one_of_scipy(size: int) -> None:
    one, other = RNG.normal(0.8, 0.05, size), RNG.normal(0.7, 0.05, size)
    assert paired_p(list(one - other)) == pytest.approx(stats.ttest_rel(one, other).pvalue, rel=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("values", [[], [0.5], [0.5, 0.5, 0.5], [0.3 - 0.1, 0.4 - 0.2, 0.2], [0.0, 0.0]])
def test_without_spread_nothing_is_said(values: list[float]) -> None:
    """One seed, or seeds that all gave the same: no interval by any method, no p value, no effect size."""
    assert not spread(values) and paired_p(values) is None and effect_size(values) is None
    assert [make(values, 0.95) for make in INTERVALS.values()] == [None, None]
    assert summary(values).n == len(values) and (summary(values).mean is None) == (not values)
    assert (summary(values).std is None) == (len(values) < 2)


def test_small_spread_of_large_values_counts() -> None:
    assert spread([30.001, 30.002]) and spread([1e-7, 2e-7]) and not spread([30.0, 30.0 + 1e-9])


def test_holm_by_hand() -> None:
    """Holm's own steps: sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, then never falling."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, None, 0.5]) == [pytest.approx(0.03), None, 1.0]  # the one without a p value was looked at too
    assert holm([]) == [] and holm([0.2]) == [0.2] and holm([None]) == [None]


def test_holm_decides_as_the_step_down_test() -> None:
    """Rejecting where the adjusted value is at most alpha is Holm's test: p(i) <= alpha / (m - i + 1) until the first that fails."""
    for _ in range(50):
        p_values = list(RNG.uniform(0, 0.1, 6))
        rejected = set()
        for rank, place in enumerate(np.argsort(p_values)):
            if p_values[place] > 0.05 / (6 - rank):
                break
            rejected.add(int(place))
        assert {place for place, p in enumerate(holm(p_values)) if p is not None and p <= 0.05} == rejected


@pytest.mark.parametrize(("size", "correction"), [(3, 0.5642), (5, 0.7979), (10, 0.9139)])
def test_effect_size_has_hedges_correction(size: int, correction: float) -> None:
    """J(2) = 1 / sqrt(pi), J(4) = sqrt(2 / pi): the gamma function at halves; J(9) as tabulated."""
    differences = list(RNG.normal(1.0, 0.5, size))
    assert effect_size(differences) == pytest.approx(correction * np.mean(differences) / np.std(differences, ddof=1), rel=1e-4)
    assert effect_size(differences[:2]) is None
