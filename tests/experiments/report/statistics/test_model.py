"""The model against least squares and analysis of variance worked out another way."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments.report.statistics.model import Fit, fit
from attnlab.experiments.report.statistics.scale import Scale
from tests.experiments.report.statistics.blocked import by_seed

RNG = np.random.default_rng(11)


def fitted(values: Any, scale: Scale | None = None, shared: bool = True) -> Fit:
    """See `by_seed`."""
    return fit(by_seed(values, shared), scale or Scale())


def test_without_shared_seeds_it_is_one_way_analysis_of_variance() -> None:
    """The F statistic from our means and variance is that of `scipy.stats.f_oneway`."""
    values = RNG.normal(size=(4, 5)) + np.array([0, 0.5, 1, 0])[:, None]
    found = fitted(values, shared=False)
    assert (found.kind, found.freedom) == ("pooled", 16)
    between = 5 * np.var(found.means, ddof=1)
    assert between / found.run_variance("v0") == pytest.approx(stats.f_oneway(*values).statistic)
    estimate = fitted(values[:2], shared=False).estimate({"v1": 1.0, "v0": -1.0})
    expected = stats.ttest_ind(values[1], values[0])
    assert estimate.value / (estimate.error or 0) == pytest.approx(expected.statistic)


@pytest.mark.quick
@pytest.mark.parametrize("variants", [2, 5, 12])
@pytest.mark.parametrize("effect", [0.0, 10.0])
def test_the_design_alone_says_whether_the_seed_is_a_block(variants: int, effect: float) -> None:
    """Whatever the values are, and whatever the number of variants."""
    for seeds in (2, 3, 5, 8):
        values = RNG.normal(size=(variants, seeds)) + effect * RNG.normal(size=seeds)
        found = fitted(values)
        assert (found.kind, found.freedom) == ("blocked", (variants - 1) * (seeds - 1))
        assert fitted(values, shared=False).kind == "pooled"


def test_the_mean_of_a_variant_varies_with_the_seeds() -> None:
    """Of two variants its variance is the mean of the two variances over seeds."""
    values = np.array([0.0, 10.0, 20.0, 30.0]) + RNG.normal(size=(2, 4)) + np.array([0, 1])[:, None]
    mean = fitted(values).estimate({"v0": 1.0})
    assert mean.variance == pytest.approx(values.var(-1, ddof=1).mean() / 4)
    assert 3 <= mean.freedom < 3.2


@pytest.mark.quick
def test_a_variant_at_a_bound_does_not_widen_the_others() -> None:
    """Three seeds 0.02 apart against 0.0 three times: less than drawing the examples explains. And
    variants that stand at a bound neither add to what the others vary nor hide it.
    """
    scale = Scale(0.0, 1.0, 1000)
    assert [scale.unit(bound, 3) for bound in (0.0, 1.0)] == pytest.approx([1.67e-7] * 2, rel=0.01)
    estimate = fitted([[0.75, 0.76, 0.77], [0.0] * 3], scale).estimate({"v0": 1.0, "v1": -1.0})
    assert estimate.error == pytest.approx(math.sqrt(0.76 * 0.24 / 3000), rel=0.01)
    pair = [[0.45, 0.5, 0.55], [0.52, 0.49, 0.45]]
    beside = fitted([*pair, [0.0] * 3, [1.0] * 3, [1.0] * 3], scale)
    assert beside.run_variance("v0") == pytest.approx(np.var(pair, 1, ddof=1).mean(), rel=0.01)
    assert beside.freedom == pytest.approx(4, rel=0.01), "the two that vary, without a seed's part"


def test_an_effect_of_the_seed_that_quiet_variants_do_not_show_costs_degrees_of_freedom() -> None:
    """Three that move together beside two at a bound: Satterthwaite's of the mean squares of an
    analysis of variance of the three. Without it they are independent: 2 of each.
    """
    noise = 0.02 * np.array([[1, -2, 1], [-2, 1, 1], [1, 1, -2]])
    for size, expected in ((0.0, 6.0), (0.1, 2 * (13.5 + 2) ** 2 / (13.5**2 + 2))):
        rows = 0.5 + noise + size * np.array([-0.9, 0.0, 0.9])
        found = fitted([*rows, [0.0] * 3, [1.0] * 3], Scale(0.0, 1.0, 1000))
        assert found.freedom == pytest.approx(expected, rel=0.01)


def test_what_varies_more_than_the_others_is_judged_by_its_own_spread_too() -> None:
    """The F test is exact: of differences that spread alike one in twenty is; the spread is that of
    the paired t test, and of Welch's where no seed is shared.
    """
    one, other = {"v1": 1.0, "v0": -1.0}, {"v2": 1.0, "v0": -1.0}
    counts = [len(fitted(RNG.normal(size=(5, 4))).judging(one)) for _ in range(1000)]
    assert counts.count(2) == pytest.approx(50, abs=21)  # three standard deviations
    assert len(fitted([[0.4, 0.5], [0.6, 0.5], [1, 1], [1, 1]]).judging(one)) == 2, "they agree"
    values = RNG.normal(size=(6, 5)) * np.array([1, 30, 1, 1, 1, 1])[:, None]
    pair = values[1], values[0]
    for shared in (True, False):
        found = fitted(values, shared=shared)
        model, own = found.judging(one)
        assert (model.own, own.own, len(found.judging(other))) == (False, True, 1)
        expected = stats.ttest_rel(*pair) if shared else stats.ttest_ind(*pair, equal_var=False)
        assert own.value / (own.error or 0) == pytest.approx(expected.statistic)
        assert own.freedom == pytest.approx(expected.df)


@pytest.mark.parametrize("scale", [Scale(), Scale(0.0, 1.0, 200)])
def test_with_failed_seeds_a_block_is_generalised_least_squares(scale: Scale) -> None:
    """Against normal equations with the inverses of the units as weights, and the residuals'
    covariance as a matrix. So a variant that lacks its best seed has the mean it would have had.
    """
    rows = np.array([[0.3, 0.5, 0.62, 0.4], [0.99, 1, np.nan, 1], [np.nan, 0.1, 0.3, 0.2]])
    of, seeds = np.nonzero(~np.isnan(rows))
    y, design = rows[of, seeds], np.hstack([np.eye(3)[of], np.eye(4)[seeds][:, 1:]])
    units = [scale.unit(np.nanmean(row), np.isfinite(row).sum()) for row in rows]
    unit = np.diag(np.array(units)[of])
    covariance = np.linalg.inv(design.T @ np.linalg.inv(unit) @ design)
    solution = covariance @ design.T @ np.linalg.inv(unit) @ y
    spread = unit - design @ covariance @ design.T
    error = float(((y - design @ solution) ** 2).sum() / np.trace(spread))
    found = fitted(rows, scale)
    assert found.kind == "blocked" and (scale.count is None or error > 1), "no floor here"
    assert found.freedom == pytest.approx(np.trace(spread) ** 2 / (spread**2).sum())
    assert found.variances == pytest.approx(error * np.array(units))
    assert found.means == pytest.approx(solution[:3] + solution[3:].sum() / 4)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        estimate = found.estimate({f"v{one}": 1.0, f"v{other}": -1.0})
        along = np.eye(6)[one] - np.eye(6)[other]
        assert estimate.value == pytest.approx(along @ solution)
        assert estimate.variance == pytest.approx(error * along @ covariance @ along)


def test_a_complete_variant_has_its_own_mean_beside_huge_numbers() -> None:
    rows = np.array([[7.2, 7.4, 7.3], [1e58, np.nan, np.nan], [2e59, np.nan, 3e44]])
    assert fitted(rows, Scale()).means[0] == pytest.approx(7.3)


def test_a_single_seed_has_no_variance_of_its_own() -> None:
    found = fitted([[0.1, np.nan], [0.3, 0.4]])
    assert found.estimate({"v0": 1.0}).freedom == 1, "but takes part in the pooled one"
    assert fitted([[0.1], [0.3]]).estimate({"v0": 1.0}).variance is None


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_the_model_does_not_depend_on_the_unit(size: float) -> None:
    values = RNG.normal(size=(3, 4))
    one, other = fitted(values), fitted(size * values + 3 * size)
    assert (one.kind, one.freedom) == (other.kind, other.freedom)
    assert (other.run_variance("v1") or 0) == pytest.approx((one.run_variance("v1") or 0) * size**2)


def test_shares_that_vary_less_than_drawing_examples_would_have_the_floor() -> None:
    """With the degrees of freedom of the estimate: t of two is that of the paired t test, or smaller."""
    scale = Scale(0.0, 1.0, 100)
    floored = fitted([[0.5, 0.5, 0.5], [0.7, 0.71, 0.7]], scale, shared=False)
    assert (floored.freedom, floored.run_variance("v0")) == (4, pytest.approx(scale.unit(0.5, 3)))
    fewer = []
    for values in 0.5 + 0.05 * RNG.normal(size=(100, 2, 3)):
        estimate = fitted(values, scale).estimate({"v0": 1.0, "v1": -1.0})
        expected = stats.ttest_rel(*values)
        fewer.append(estimate.value / (estimate.error or 0) / expected.statistic)
        assert estimate.freedom == expected.df
    assert 0 < min(fewer) < 0.8 and max(fewer) == pytest.approx(1)
