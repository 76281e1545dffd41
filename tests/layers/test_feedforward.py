"""The position-wise layers: formula, positions apart, precision."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.feedforward import FeedForward, layer_norm


@pytest.mark.quick
def test_feed_forward_is_the_formula_at_each_position_alone() -> None:
    module, rng = FeedForward(7), np.random.default_rng(0)
    x = rng.normal(size=(2, 5, 4)).astype(np.float32)
    params = jax.tree.map(
        lambda leaf: rng.normal(size=leaf.shape).astype(np.float32),
        module.init(jax.random.key(0), x)["params"],
    )
    found = np.asarray(module.apply({"params": params}, x))
    inner, outer = params["inner"], params["outer"]
    for b in range(2):
        for t in range(5):
            hidden = np.maximum(x[b, t].astype(np.float64) @ inner["kernel"] + inner["bias"], 0.0)
            np.testing.assert_allclose(
                found[b, t], hidden @ outer["kernel"] + outer["bias"], atol=1e-5
            )
    order = rng.permutation(5)
    np.testing.assert_allclose(
        module.apply({"params": params}, x[:, order]), found[:, order], atol=1e-6
    )


def test_dropout_is_after_the_rectifier_and_needs_a_stream() -> None:
    """With all hidden units dropped only the last bias is left."""
    module = FeedForward(64, dropout=0.5)
    x = np.ones((1, 1, 4), np.float32)
    params = FeedForward(64).init(jax.random.key(0), x)["params"]
    quiet = module.apply({"params": params}, x)
    np.testing.assert_array_equal(quiet, FeedForward(64).apply({"params": params}, x))
    draw = jax.jit(jax.vmap(lambda key: module.apply({"params": params}, x, rngs={"dropout": key})))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    np.testing.assert_allclose(
        drawn.mean(axis=0), quiet, atol=5 * drawn.std(axis=0).max() / np.sqrt(4000)
    )
    assert drawn.std(axis=0).min() > 0.01


@pytest.mark.quick
@pytest.mark.parametrize("mean", [0.0, 100.0, 1e4])
def test_layer_norm_keeps_its_digits_where_the_mean_is_large(mean: float) -> None:
    """Against float64; E[x^2] - E[x]^2 in float32 would be off by whole units at a mean of 10^4."""
    x = (np.random.default_rng(0).normal(size=(3, 8)) + mean).astype(np.float32)
    scale, bias = (
        np.linspace(0.5, 2, 8).astype(np.float32),
        np.linspace(-1, 1, 8).astype(np.float32),
    )
    found = layer_norm().apply({"params": {"scale": scale, "bias": bias}}, x)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * scale + bias
    np.testing.assert_allclose(found, expected, atol=2e-6 * max(1.0, mean))


def test_layer_norm_of_a_constant_row_is_the_bias_and_bfloat16_keeps_its_type() -> None:
    module = layer_norm("norm")
    params = module.init(jax.random.key(0), jnp.ones((1, 4)))["params"]
    assert module.name == "norm" and {name: leaf.tolist() for name, leaf in params.items()} == {
        "scale": [1.0] * 4,
        "bias": [0.0] * 4,
    }
    np.testing.assert_array_equal(
        module.apply({"params": params}, jnp.full((2, 4), 3.0)), np.zeros((2, 4))
    )
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 256)) + 20, jnp.bfloat16)
    low = {"scale": jnp.ones(256, jnp.bfloat16), "bias": jnp.zeros(256, jnp.bfloat16)}
    found = module.apply({"params": low}, x)
    assert found.dtype == jnp.bfloat16
    assert (
        abs(np.asarray(found, np.float32).mean()) < 1e-2
        and abs(np.asarray(found, np.float32).std() - 1) < 1e-2
    )
