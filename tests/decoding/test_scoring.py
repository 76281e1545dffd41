"""Length and coverage penalties have the published values."""

import jax
import numpy as np
import pytest

from attnlab.decoding.scoring import coverage_penalty, length_penalty


@pytest.mark.parametrize(
    ("length", "alpha", "value"),
    [(10, 0.6, 1.7329), (10, 0.2, 1.2011), (20, 0.6, 2.3544), (1, 0.6, 1.0), (17, 0.0, 1.0)],
)
def test_length_penalty(length: int, alpha: float, value: float) -> None:
    assert float(length_penalty(length, alpha)) == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize(
    ("coverage", "value"),
    [((1.0, 1.1, 0.9), -0.0211), ((1.8, 0.2, 0.0), -3.085), ((1.0, 2.0, 1.0), 0.0)],
)
def test_coverage_penalty(coverage: tuple[float, ...], value: float) -> None:
    penalty = jax.jit(coverage_penalty)(np.array(coverage, np.float32), np.ones(3, bool), 0.2)
    assert float(penalty) == pytest.approx(value, abs=1e-3)
