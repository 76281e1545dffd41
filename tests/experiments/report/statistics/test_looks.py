"""Levels of looks against published boundaries, and their total error by simulation."""

import numpy as np
import pytest
from scipy import stats

from attnlab.experiments.report.statistics.looks import spent


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
