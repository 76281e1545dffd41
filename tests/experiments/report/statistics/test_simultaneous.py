"""Adjusted p values and simultaneous factors against scipy's Dunnett and Tukey, and against each
other.
"""

import math

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments.report.statistics.simultaneous import Joint

HALF = math.sqrt(0.5)
AROUND, APART = Joint((HALF,) * 4, 0, 8.0), Joint((0.9, 0.1, 0.5), 0, None)


@pytest.mark.parametrize(
    ("variants", "freedom", "expected"),
    [(3, 6, 2.86), (5, 10, 2.89), (10, 20, 2.95), (3, 60, 2.27)],
)
def test_dunnett_is_that_of_the_table(variants: int, freedom: int, expected: float) -> None:
    """Two-sided 5 % points of Dunnett (1964), table II: `variants` with the baseline."""
    joint = Joint((HALF,) * (variants - 1), 0, freedom)
    assert joint.critical(0.05, freedom) == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("groups", "freedom"), [(3, 6.0), (5, 2.5), (12, 24.0), (4, math.inf)])
def test_tukey_is_the_studentized_range_of_scipy(groups: int, freedom: float) -> None:
    joint = Joint((), groups, freedom)
    for t in (0.5, 2.0, 5.0):
        expected = stats.studentized_range.sf(t * math.sqrt(2), groups, freedom)
        assert joint.p(t, freedom) == pytest.approx(expected, abs=2e-6)
    critical = stats.studentized_range.ppf(0.95, groups, freedom) / math.sqrt(2)
    assert joint.critical(0.05, freedom) == pytest.approx(critical, rel=1e-5)


@pytest.mark.parametrize("joint", [AROUND, APART, Joint((), 4, 9.0), Joint((), 4, None)])
@pytest.mark.parametrize("freedom", [2.3, 8.0, math.inf])
def test_the_critical_value_is_where_p_is_alpha(joint: Joint, freedom: float) -> None:
    if joint.freedom is not None:
        freedom = joint.freedom
    for alpha in (0.01, 0.05, 0.2):
        assert joint.p(joint.critical(alpha, freedom), freedom) == pytest.approx(alpha, abs=1e-7)
    assert joint.p(0.0, freedom) == 1.0 and joint.p(60.0, freedom) <= joint.p(50.0, freedom)


def test_unequal_correlations_against_simulation() -> None:
    loadings = (0.2, 0.7, 0.95)
    rng = np.random.default_rng(3)
    z = rng.normal(size=(200_000, 1))
    e = rng.normal(size=(200_000, 3))
    scale = np.sqrt(rng.chisquare(5, (200_000, 1)) / 5)
    largest = np.abs(np.array(loadings) * z + np.sqrt(1 - np.array(loadings) ** 2) * e)
    for freedom, drawn in ((5.0, (largest / scale).max(-1)), (math.inf, largest.max(-1))):
        for size in (1.5, 2.5):
            expected = pytest.approx((drawn > size).mean(), abs=4e-3)
            assert Joint(loadings, 0, freedom).p(size, freedom) == expected


def test_one_comparison_needs_no_adjustment() -> None:
    for joint in (Joint((0.99,), 0, 4.0), Joint((), 2, 4.0)):
        assert joint.p(2.0, 4.0) == pytest.approx(2 * stats.t.sf(2.0, 4))
        assert joint.critical(0.05, 4.0) == pytest.approx(stats.t.ppf(0.975, 4))
    equal = Joint((1.0,) * 6, 0, 3.0).critical(0.05, 3.0)
    assert equal == pytest.approx(stats.t.ppf(0.975, 3), rel=2e-3), "the baseline alone varies"


def test_adjusted_is_between_single_and_bonferroni() -> None:
    single = 2 * stats.t.sf(2.5, 3)
    for joint in (Joint((0.3,) * 6, 0, 3.0), Joint((0.3,) * 6, 0, None), Joint((), 4, None)):
        assert single < joint.p(2.5, 3.0) < 6 * single
