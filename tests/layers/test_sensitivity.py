"""Sensitivities against central differences, of more channels than are computed at once."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.layers.sensitivity import AT_ONCE, sensitivity


def differences(function: Any, x: np.ndarray, by: float = 1e-5) -> np.ndarray:
    """|| d y_i / d x_j || [n,S] of x [1,S,d] by central differences, a direction at a time."""
    _, length, width = x.shape
    moves = by * np.eye(length * width).reshape(-1, 1, length, width)
    both = [np.asarray(jax.jit(jax.vmap(function))(x + sign * moves)) for sign in (1, -1)]
    slopes = ((both[0] - both[1]) / (2 * by))[:, 0].reshape(length, width, both[0].shape[2], -1)
    found: np.ndarray = np.sqrt((slopes**2).sum(axis=(1, 3))).T
    return found


def test_it_is_what_central_differences_give(float64: None) -> None:
    rng = np.random.default_rng(0)
    x, mixing, into = (rng.normal(size=shape) for shape in ((1, 5, 3), (4, 5), (3, AT_ONCE + 5)))
    function = lambda x: jnp.tanh(mixing @ x @ into)
    found = jax.jit(lambda x: sensitivity(function, x))(x)
    np.testing.assert_allclose(found[0], differences(function, x), rtol=1e-6)
