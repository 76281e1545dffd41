"""What a scale knows: ties, the binomial floor, intervals that stay inside."""

import pytest
from scipy import stats

from attnlab.experiments.report.statistics.scale import Scale

SHARE = Scale(0.0, 1.0, 100)


def test_rounding_goes_by_the_values_and_the_bounds() -> None:
    assert Scale().rounding([0.0, -200.0]) == pytest.approx(200e-9)
    assert Scale(0.0, 100.0).rounding([0.01]) == pytest.approx(100e-9)
    assert Scale().rounding([]) == 0.0


def test_the_unit_of_variance_is_that_of_drawing_the_examples() -> None:
    share = (0.25 * 300 + 0.5) / 301
    assert SHARE.unit(0.25, 3) == pytest.approx(share * (1 - share) / 100)
    percent = Scale(0.0, 100.0, 100)
    assert percent.unit(25.0, 3) == pytest.approx(1e4 * SHARE.unit(0.25, 3))
    assert SHARE.unit(1.0, 3) > 0 and SHARE.unit(0.0, 3) > 0
    assert Scale(0.0, 1.0).unit(0.25, 3) == 1.0


@pytest.mark.parametrize("mean", [0.0, 1e-6, 0.3, 0.999, 1.0])
@pytest.mark.parametrize("reach", [1e-6, 0.05, 3.0])
def test_intervals_of_shares_stay_inside_and_hold_the_mean(mean: float, reach: float) -> None:
    low, high = SHARE.around(mean, 3, reach)
    assert 0 <= low <= mean <= high <= 1
    low, high = Scale(0.0, 100.0, 100).around(100 * mean, 3, 100 * reach)
    assert 0 <= low <= 100 * mean <= high <= 100


def test_intervals_are_those_of_wilson_and_far_from_the_bounds_symmetric() -> None:
    for right in (0, 75, 300):
        expected = stats.binomtest(right, 300).proportion_ci(0.95, method="wilson")
        reach = stats.norm.ppf(0.975) * (SHARE.unit(right / 300, 3) / 3) ** 0.5
        assert SHARE.around(right / 300, 3, reach) == pytest.approx(tuple(expected))
    assert Scale(0.0, 1.0).around(0.5, 3, 0.01) == pytest.approx((0.49, 0.51), abs=1e-5)
    assert Scale().around(0.5, 3, 0.7) == pytest.approx((-0.2, 1.2))


def test_what_is_no_scale_is_refused() -> None:
    for wrong in ({"low": 1.0, "high": 0.0}, {"count": 3}, {"low": 0.0, "high": 1.0, "count": 0}):
        with pytest.raises(ValueError):
            Scale(**wrong)  # type: ignore[arg-type]


def test_near_a_bound_without_a_count_the_interval_is_cut_there() -> None:
    bleu = Scale(0.0, 100.0)
    assert bleu.around(0.01, 2, 3.0) == (0.0, 3.01) and bleu.around(0.0, 2, 3.0) == (0.0, 3.0)
    low, high = bleu.around(30.0, 3, 3.0)
    assert 26.5 < low < 27.5 < 32.5 < high < 33.5
