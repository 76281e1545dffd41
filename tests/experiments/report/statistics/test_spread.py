"""Quantiles, intervals by resampling, the size of an effect."""

import math

import numpy as np
import pytest

from attnlab.experiments.report.statistics.spread import (
    bootstrap_interval,
    deviation,
    effect_size,
)

RNG = np.random.default_rng(7)


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
    assert deviation([1.0]) is None and deviation([1.0, 2.0]) == pytest.approx(math.sqrt(0.5))
