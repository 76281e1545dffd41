"""Seeds that lie apart."""

import numpy as np
import pytest

from attnlab.experiments.report.statistics.seeds import apart, spread, typical

RNG = np.random.default_rng(2)


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
    assert spread([0.9, 0.91, 0.92, 0.91, 0.1]) == pytest.approx(0.01 / 0.6745, rel=1e-4)
    assert spread([0.9, 0.91, 0.92]) == pytest.approx(0.01)
    assert typical([0.01, 0.46, 0.012]) == 0.012
    assert typical([0.3]) == 0.3 and typical([]) == 0.0


@pytest.mark.parametrize(
    ("seeds", "most", "least"), [(3, 0.02, 0.3), (5, 0.02, 0.7), (10, 0.02, 0.9)]
)
def test_false_alarms_are_rare_and_failures_are_seen(seeds: int, most: float, least: float) -> None:
    """Of normal values with a known spread, and with the first 12 standard deviations lower."""
    values = RNG.normal(size=(1000, seeds))
    assert np.mean([bool(apart(dict(enumerate(one)), 1.0, 0.0)) for one in values]) < most
    values[:, 0] -= 12
    assert np.mean([apart(dict(enumerate(one)), 1.0, 0.0) == (0,) for one in values]) > least
