"""Sensitivities against central differences, of several inputs and of more channels than are computed
at once.
"""

from __future__ import annotations

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
    into, mixing = rng.normal(size=(3, AT_ONCE + 5)), rng.normal(size=(4, 5))
    first, second = rng.normal(size=(1, 5, 3)), rng.normal(size=(1, 5, 2, 3))

    def function(inputs: Any) -> jax.Array:
        first, second = inputs
        return jnp.tanh(
            mixing @ first @ into + (second**2).sum(axis=(1, 2), keepdims=True)[0] @ into
        )

    of_first, of_second = jax.jit(lambda *given: sensitivity(function, given))(first, second)
    assert of_second.shape == (1, 4, 5, 2)
    expected = differences(lambda x: function((x, second)), first)
    np.testing.assert_allclose(of_first[0], expected, rtol=1e-6)
    flat = second.reshape(1, 10, 3)
    expected = differences(lambda x: function((first, x.reshape(second.shape))), flat)
    np.testing.assert_allclose(of_second.reshape(4, 10), expected, rtol=1e-6)
