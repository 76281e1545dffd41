"""The feed-forward layers: formulas in float64, positions apart, dropout, biases."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers import FEED_FORWARDS
from attnlab.layers.feedforward import FeedForward, Gated, Relu
from tests.layers.oracles import GATED, PLAIN, feed_forward
from tests.rounding import assert_close

NAMES = FEED_FORWARDS.names()
WITH = [name for name in NAMES if name != "none"]


def drawn(name: str, **fields: Any) -> tuple[FeedForward, Any, np.ndarray]:
    """A layer of 7 hidden units, parameters N(0, 1), an input [2,5,4]."""
    rng = np.random.default_rng(0)
    module = FEED_FORWARDS.resolve(name)(hidden=7, dropout=0.0, **fields)
    x = rng.normal(size=(2, 5, 4))
    shapes = jax.eval_shape(module.init, jax.random.key(0), x).get("params", {})
    return module, jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes), x


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_feed_forward_is_the_formula_at_each_position_alone(name: str) -> None:
    module, params, x = drawn(name)
    expected = np.stack(
        [[feed_forward(name, params, x[b, t]) for t in range(x.shape[1])] for b in range(len(x))]
    )
    single = module.apply({"params": params}, x.astype(np.float32))
    assert_close(single, expected, eps=16)
    with jax.enable_x64(True):
        double = module.apply({"params": params}, x)
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, expected, atol=1e-12)
    order = np.random.default_rng(1).permutation(5)
    np.testing.assert_allclose(
        module.apply({"params": params}, x[:, order].astype(np.float32)),
        single[:, order],
        atol=1e-5,
    )


def test_every_name_has_its_formula() -> None:
    assert {*PLAIN, *GATED, "none"} == set(NAMES)
    assert set(GATED) == {name for name in NAMES if issubclass(FEED_FORWARDS.resolve(name), Gated)}


@pytest.mark.parametrize("name", WITH)
def test_biases_are_the_papers_unless_the_field_says_otherwise(name: str) -> None:
    """Two matrices have biases, three have none; the field turns either round."""
    usual = name in PLAIN
    for fields, expected in (({}, usual), ({"bias": True}, True), ({"bias": False}, False)):
        module, params, x = drawn(name, **fields)
        assert all(("bias" in layer) == expected for layer in params.values())
        assert set(params) == {"inner", "outer"} | ({"gate"} if name in GATED else set())
        assert_close(
            module.apply({"params": params}, x.astype(np.float32)),
            feed_forward(name, params, x),
            eps=16,
        )


def test_a_gate_of_one_leaves_the_other_half() -> None:
    """W_1 whose product is 1 everywhere makes swiglu the layer silu."""
    swiglu, params, x = drawn("swiglu", bias=True)
    params["inner"] = {"kernel": np.zeros((4, 7)), "bias": np.ones(7)}
    silu = FEED_FORWARDS.resolve("silu")(hidden=7, dropout=0.0)
    x = x.astype(np.float32)
    found = silu.apply({"params": {"inner": params["gate"], "outer": params["outer"]}}, x)
    np.testing.assert_allclose(swiglu.apply({"params": params}, x), found, atol=1e-6)


@pytest.mark.parametrize("name", ["relu", "swiglu"])
def test_dropout_is_on_the_hidden_units_and_needs_a_stream(name: str) -> None:
    """The mean over draws is what comes out without dropout, which only a linear layer behind it
    gives.
    """
    part = FEED_FORWARDS.resolve(name)
    module, x = part(64, 0.5), np.ones((1, 1, 4), np.float32)
    params = part(64, 0.0).init(jax.random.key(0), x)["params"]
    quiet = module.apply({"params": params}, x)
    np.testing.assert_array_equal(quiet, part(64, 0.0).apply({"params": params}, x))
    draw = jax.jit(jax.vmap(lambda key: module.apply({"params": params}, x, rngs={"dropout": key})))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(0), 4000)))
    np.testing.assert_allclose(
        drawn.mean(axis=0), quiet, atol=5 * drawn.std(axis=0).max() / np.sqrt(4000)
    )
    assert drawn.std(axis=0).min() > 0.01


def test_low_precision_stays_low() -> None:
    module = Relu(8, 0.0)
    x = jnp.ones((1, 2, 4), jnp.bfloat16)
    params = jax.tree.map(
        lambda leaf: leaf.astype(jnp.bfloat16), module.init(jax.random.key(0), x)["params"]
    )
    assert module.apply({"params": params}, x).dtype == jnp.bfloat16
