"""Every feed-forward layer is its formula in float64, each position alone, with its biases and dropout."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers import FEED_FORWARDS
from attnlab.layers.feedforward import FeedForward, Gated
from tests.layers.oracles import GATED, PLAIN, feed_forward
from tests.rounding import assert_close

NAMES = FEED_FORWARDS.names()


def drawn(name: str, **fields: Any) -> tuple[FeedForward, Any, np.ndarray]:
    """A layer of 7 hidden units, parameters N(0, 1), an input [2,5,4]."""
    rng = np.random.default_rng(0)
    module = FEED_FORWARDS.resolve(name)(hidden=7, dropout=0.0, **fields)
    x = rng.normal(size=(2, 5, 4))
    shapes = jax.eval_shape(module.init, jax.random.key(0), x).get("params", {})
    return module, jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), shapes), x


@pytest.mark.quick
@pytest.mark.parametrize("bias", [None, True, False])
@pytest.mark.parametrize("name", NAMES)
def test_feed_forward_is_the_formula_at_each_position_alone(name: str, bias: bool | None) -> None:
    """In float32, float64 and a low precision. Two matrices have biases, three have none; the field
    turns either round.
    """
    module, params, x = drawn(name, **({} if bias is None or name == "none" else {"bias": bias}))
    biased = name in PLAIN if bias is None else bias
    assert all(("bias" in layer) == biased for layer in params.values())
    matrices = {"inner", "outer"} | ({"gate"} if name in GATED else set())
    assert set(params) == (set() if name == "none" else matrices)
    expected = np.stack([[feed_forward(name, params, token) for token in row] for row in x])
    run = jax.jit(lambda params, x: module.apply({"params": params}, x))
    single = run(*jax.tree.map(np.float32, (params, x)))
    assert_close(single, expected, eps=16)
    with jax.enable_x64(True):
        double = run(params, x)
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, expected, atol=1e-12)
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (params, x))
    assert jax.eval_shape(run, *low).dtype == jnp.bfloat16


def test_every_name_has_its_formula() -> None:
    assert {*PLAIN, *GATED, "none"} == set(NAMES)
    assert set(GATED) == {name for name in NAMES if issubclass(FEED_FORWARDS.resolve(name), Gated)}


@pytest.mark.parametrize("name", ["relu", "swiglu"])
def test_dropout_is_on_the_hidden_units_and_needs_a_stream(name: str) -> None:
    """The mean over draws is what comes out without dropout, which only a linear layer behind it
    gives.
    """
    part, rng = FEED_FORWARDS.resolve(name), np.random.default_rng(0)
    module, x = part(64, 0.5), np.ones((1, 1, 4), np.float32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), x)
    variables = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)

    @jax.jit
    def found(keys: Any) -> Any:
        noisy = jax.vmap(lambda key: module.apply(variables, x, rngs={"dropout": key}))(keys)
        return noisy, module.apply(variables, x), part(64, 0.0).apply(variables, x)

    noisy, quiet, undropped = map(np.asarray, found(jax.random.split(jax.random.key(0), 4000)))
    np.testing.assert_array_equal(quiet, undropped)
    error = noisy.std(axis=0).max() / np.sqrt(4000)
    np.testing.assert_allclose(noisy.mean(axis=0), quiet, atol=5 * error)
    assert noisy.std(axis=0).min() > 0.01
