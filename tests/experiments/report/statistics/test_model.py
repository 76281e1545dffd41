"""The model against least squares and analysis of variance worked out another way."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments.report.statistics import Scale
from attnlab.experiments.report.statistics.model import Fit, fit

RNG = np.random.default_rng(11)


def fitted(values: Any, scale: Scale | None = None, shared: bool = True) -> Fit:
    """Of values [variants][seeds], nan for a missing seed; each variant has seeds of its own unless
    they are shared.
    """
    rows = {
        f"v{place}": {
            seed: float(value) for seed, value in enumerate(row, 0 if shared else 100 * place)
        }
        for place, row in enumerate(values)
    }
    known = lambda row: {seed: value for seed, value in row.items() if not math.isnan(value)}
    return fit({name: known(row) for name, row in rows.items()}, scale or Scale())


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


def test_a_difference_of_two_is_the_paired_t_test() -> None:
    """Two-way analysis of variance by hand: the paired t test, for two variants."""
    values = np.array([0.0, 10.0, 20.0, 30.0]) + RNG.normal(size=(2, 4)) + np.array([0, 1])[:, None]
    found = fitted(values)
    assert (found.kind, found.freedom) == ("blocked", 3)
    estimate = found.estimate({"v1": 1.0, "v0": -1.0})
    assert estimate.value / (estimate.error or 0) == pytest.approx(
        stats.ttest_rel(values[1], values[0]).statistic
    )
    # The mean of a variant still varies with the seeds: its variance is the mean of the two
    # variances over seeds.
    mean = found.estimate({"v0": 1.0})
    assert mean.variance == pytest.approx(values.var(-1, ddof=1).mean() / 4)
    assert 3 <= mean.freedom < 3.2


def test_a_block_of_a_share_has_its_floor() -> None:
    shares = np.clip(
        np.array([0.2, 0.5, 0.8]) + np.array([[0.0, 0.01, 0.02], [0.01, 0.01, 0.03]]), 0, 1
    )
    found = fitted(shares, Scale(0.0, 1.0, 1000))
    assert found.kind == "blocked" and math.isinf(found.freedom)


@pytest.mark.quick
def test_a_variant_at_a_bound_does_not_widen_the_others() -> None:
    """Seeds 0.02 apart against 0.0 three times: less than drawing the examples explains. Where they
    vary by more it is the paired t test; and variants that stand at a bound neither add to what the
    others vary nor hide it.
    """
    scale = Scale(0.0, 1.0, 1000)
    assert [scale.unit(bound, 3) for bound in (0.0, 1.0)] == pytest.approx([1.67e-7] * 2, rel=0.01)
    found = fitted([[0.75, 0.76, 0.77], [0.0, 0.0, 0.0]], scale)
    assert math.isinf(found.freedom)
    estimate = found.estimate({"v0": 1.0, "v1": -1.0})
    assert estimate.error == pytest.approx(math.sqrt(0.76 * 0.24 / 3000), rel=0.01)
    noisy = [[0.70, 0.76, 0.82], [0.001, 0.0, 0.0]]
    estimate = fitted(noisy, scale).estimate({"v0": 1.0, "v1": -1.0})
    expected = stats.ttest_rel(*noisy)
    assert estimate.value / (estimate.error or 0) == pytest.approx(expected.statistic)
    assert estimate.freedom == expected.df
    pair = [[0.45, 0.5, 0.55], [0.52, 0.49, 0.45]]
    beside = fitted([*pair, [0.0] * 3, [1.0] * 3, [1.0] * 3], scale)
    plain = np.var(pair, axis=1, ddof=1).mean()
    assert beside.run_variance("v0") == pytest.approx(plain, rel=0.01)
    assert beside.freedom == pytest.approx(4, rel=0.01), "the two that vary, without a seed's part"


def test_a_block_of_shares_is_generalised_least_squares() -> None:
    """With seeds missing, against normal equations with the inverses of the units as weights, and
    the residuals' covariance as a matrix.
    """
    scale = Scale(0.0, 1.0, 200)
    rows = [[0.3, 0.5, 0.62, 0.4], [0.99, 1.0, np.nan, 1.0], [np.nan, 0.1, 0.3, 0.2]]
    y = np.array([value for row in rows for value in row if not math.isnan(value)])
    places = np.argwhere(~np.isnan(rows))
    indicators = [places[:, 0] == variant for variant in range(3)]
    indicators += [places[:, 1] == seed for seed in (1, 2, 3)]
    design = np.array(indicators, float).T
    units = np.array(
        [scale.unit(float(np.nanmean(row)), int((~np.isnan(row)).sum())) for row in rows]
    )
    unit = np.diag(units[places[:, 0]])
    covariance = np.linalg.inv(design.T @ np.linalg.inv(unit) @ design)
    solution = covariance @ design.T @ np.linalg.inv(unit) @ y
    spread = unit - design @ covariance @ design.T
    error = float(((y - design @ solution) ** 2).sum() / np.trace(spread))
    assert error > 1, "no floor here"
    found = fitted(rows, scale)
    assert found.kind == "blocked"
    assert found.freedom == pytest.approx(np.trace(spread) ** 2 / (spread**2).sum())
    assert found.variances == pytest.approx(error * units)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        estimate = found.estimate({f"v{one}": 1.0, f"v{other}": -1.0})
        assert estimate.value == pytest.approx(solution[one] - solution[other])
        along = np.eye(6)[one] - np.eye(6)[other]
        assert estimate.variance == pytest.approx(error * along @ covariance @ along)


def test_what_varies_more_than_the_others_is_judged_by_its_own_spread_too() -> None:
    """The F test is exact: of differences that spread alike one in twenty is; the spread is that of
    the paired t test, and of Welch's where no seed is shared.
    """
    one, other = {"v1": 1.0, "v0": -1.0}, {"v2": 1.0, "v0": -1.0}
    counts = [len(fitted(RNG.normal(size=(5, 4))).judging(one)) for _ in range(1000)]
    assert counts.count(2) == pytest.approx(50, abs=21)  # three standard deviations
    values = RNG.normal(size=(6, 5)) * np.array([1, 30, 1, 1, 1, 1])[:, None]
    for shared in (True, False):
        found = fitted(values, shared=shared)
        model, own = found.judging(one)
        assert (model.own, own.own, len(found.judging(other))) == (False, True, 1)
        expected = (
            stats.ttest_rel(values[1], values[0])
            if shared
            else stats.ttest_ind(values[1], values[0], equal_var=False)
        )
        assert own.value / (own.error or 0) == pytest.approx(expected.statistic)
        assert own.freedom == pytest.approx(expected.df)


def test_a_failed_seed_is_handled_by_least_squares() -> None:
    """With a block, the mean of the variant that lacks its best seed is what it would have been,
    against an independent solver.
    """
    values = np.array([0.0, 10.0, 20.0, 40.0]) + RNG.normal(size=(3, 4)) * 0.1
    values[1, 3] = np.nan
    found = fitted(values)
    assert found.kind == "blocked"
    design, target = [], []
    for variant in range(3):
        for seed in range(4):
            if not math.isnan(values[variant, seed]):
                indicators = [variant == 0, variant == 1, variant == 2]
                indicators += [seed == other for other in (1, 2, 3)]
                design.append([float(indicator) for indicator in indicators])
                target.append(values[variant, seed])
    solution, residual, _, _ = np.linalg.lstsq(np.array(design), np.array(target), rcond=None)
    assert found.means[1] - found.means[0] == pytest.approx(solution[1] - solution[0])
    assert found.run_variance("v0") == pytest.approx(residual[0] / 5)
    covariance = np.linalg.inv(np.array(design).T @ np.array(design)) * residual[0] / 5
    expected = covariance[1, 1] + covariance[0, 0] - 2 * covariance[0, 1]
    assert found.estimate({"v1": 1.0, "v0": -1.0}).variance == pytest.approx(expected)
    assert found.estimate({"v1": 1.0}).value == pytest.approx(17.5, abs=0.3), (
        "not 10, the mean of the seeds it has"
    )


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
    """And then the variance is known: infinitely many degrees of freedom."""
    scale = Scale(0.0, 1.0, 100)
    found = fitted([[0.5, 0.5, 0.5], [0.7, 0.71, 0.7]], scale)
    assert math.isinf(found.freedom)
    assert found.run_variance("v0") == pytest.approx(scale.unit(0.5, 3))
    loose = fitted([[0.3, 0.5, 0.7], [0.9, 0.5, 0.71]], scale)
    assert loose.freedom == 2 and (loose.run_variance("v0") or 0) > scale.unit(0.5, 3)
