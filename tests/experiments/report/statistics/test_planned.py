"""Power against simulation and against itself; levels of looks against published boundaries, and
their total error by simulation.
"""

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments.report.statistics.planned import Dunnett, spent


def test_power_of_one_comparison_against_simulation() -> None:
    rng = np.random.default_rng(5)
    one, other = rng.normal(size=(2, 20_000, 4))
    found = (stats.ttest_ind(one + 2.0, other, axis=-1).pvalue < 0.05).mean()
    assert Dunnett(1.0, 2, 1).chance_to_find(2.0, 4) == pytest.approx(found, abs=0.01)


def test_no_difference_is_found_as_often_as_alpha_says() -> None:
    assert Dunnett(1.0, 2, 1).chance_to_find(0.0, 5) == pytest.approx(0.05, abs=1e-6)
    assert Dunnett(1.0, 6, 5).chance_to_find(0.0, 5) < 0.05


@pytest.mark.parametrize(("seeds", "per_seed", "comparisons"), [(2, 2, 1), (3, 12, 11), (10, 5, 4)])
def test_the_detectable_difference_is_found(seeds: int, per_seed: float, comparisons: int) -> None:
    test = Dunnett(0.1, per_seed, comparisons)
    least = test.detectable(seeds)
    assert test.chance_to_find(least, seeds) == pytest.approx(0.8, abs=1e-6)
    assert Dunnett(0.2, per_seed, comparisons).detectable(seeds) == pytest.approx(2 * least)
    assert test.seeds_needed(least * 1.0001) == seeds


def test_the_known_number_for_one_standard_deviation() -> None:
    """17 runs each for d = 1, power 0.8, alpha 0.05 two-sided: the textbook's (Cohen 1988, table
    2.4.1).
    """
    test = Dunnett(1.0, 2, 1)
    assert [test.seeds_needed(size) for size in (1.0, 1e-6, 1e6)] == [17, None, 2]
    assert test.detectable(1) is None


def test_boundaries_are_the_published_ones() -> None:
    """Five looks, two-sided 0.05: Proschan, Lan and Wittes (2006); one look has all of alpha."""
    found = [stats.norm.isf(spent(look, 5) / 2) for look in range(1, 6)]
    assert found == pytest.approx((4.877, 3.357, 2.680, 2.290, 2.031), abs=2e-3)
    assert spent(1, 1, 0.03) == pytest.approx(0.03)
    with pytest.raises(ValueError, match="planned"):
        spent(3, 2)


@pytest.mark.parametrize("looks", [2, 4])
def test_all_looks_together_err_as_often_as_alpha(looks: int) -> None:
    """Three more seeds at each look, with estimated variances; looking each time at 0.05 errs far
    more often.
    """
    values = np.random.default_rng(1).normal(size=(2, 20_000, 3 * looks))
    some = [values[..., : 3 * look] for look in range(1, looks + 1)]
    p = [stats.ttest_ind(*each, axis=-1).pvalue for each in some]
    wrong = np.any([one < spent(look, looks) for look, one in enumerate(p, 1)], axis=0).mean()
    assert 0.04 < wrong <= 0.054
    assert np.any(np.array(p) < 0.05, axis=0).mean() > 0.075
