"""A norm and a gate, in either order, are their formula."""

import jax
import numpy as np
import pytest

from attnlab.layers.gated_norm import GatedNorm


@pytest.mark.parametrize("first", ["norm", "gate"])
@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_it_is_the_formula(first: str, activation: str) -> None:
    o, z = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    scale = np.arange(1.0, 5.0, dtype=np.float32)
    module = GatedNorm(activation, first)  # type: ignore[arg-type]
    actual = jax.jit(module.apply)({"params": {"norm": {"scale": scale}}}, o, z)
    gate = (z if activation == "silu" else 1.0) / (1 + np.exp(-z))
    given = o if first == "norm" else o * gate
    normed = given / np.sqrt((given**2).mean(axis=-1, keepdims=True) + 1e-5) * scale
    np.testing.assert_allclose(actual, normed * gate if first == "norm" else normed, rtol=1e-5)
