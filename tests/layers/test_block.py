"""What each placement of a residual connection leaves of x, and dropout on what functions give. The
formulas of whole blocks are those of the oracles of systems (`placed`), in every placement. Every
feed-forward layer is its formula in float64, each position alone, with its biases and dropout.
"""

import typing
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers import FEED_FORWARDS
from attnlab.layers.block import TOPPED, Placement, Residual
from attnlab.layers.feedforward import FeedForward, Gated
from attnlab.layers.norms import LayerNorm
from tests.layers.oracles import GATED, PLAIN, feed_forward, norm_of
from tests.rounding import assert_close

PLACEMENTS = typing.get_args(Placement)
D = 6


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_what_functions_give_is_all_that_is_added_and_dropped(placement: Placement) -> None:
    """Of functions that give nothing: the identity, the norm of x for "post", nothing without a
    residual; "res_post" and "sandwich" start with norms of 0, which are 0. Dropped entries leave x
    itself, or nothing where there is no residual.
    """
    x = np.random.default_rng(1).normal(size=(1, 50, D)).astype(np.float32)
    plain, dropping = (Residual(placement, LayerNorm, rate) for rate in (0.0, 0.5))

    @jax.jit
    def both(key: Any) -> Any:
        params = plain.init(key, x, lambda x: 0 * x).get("params", {})
        actual = plain.apply({"params": params}, x, lambda x: 0 * x)
        moved = {"params": jax.tree.map(lambda leaf: leaf + 0.5, params)}
        return actual, dropping.apply(moved, x, lambda x: x + 3, rngs={"dropout": key})

    actual, dropped = map(np.asarray, both(jax.random.key(0)))
    expected = {"post": norm_of("layer_norm", {}, x.astype(np.float64), 1e-6), "none": 0 * x}
    np.testing.assert_allclose(actual, expected.get(placement, x), atol=1e-6)
    if placement != "post":  # there the norm of a row knows of all its entries
        keep_mask = dropped == (0.0 if placement == "none" else x)
        assert 0.35 < keep_mask.mean() < 0.65


def test_rezero_starts_as_the_identity_and_learns_its_strength() -> None:
    x, residual = np.arange(2.0 * D, dtype="f4").reshape(1, 2, D), Residual("rezero", LayerNorm, 0)
    params = residual.init(jax.random.key(0), x, lambda x: x + 3)
    np.testing.assert_array_equal(residual.apply(params, x, lambda x: x + 3), x)
    slope = jax.grad(lambda params: residual.apply(params, x, lambda x: x + 3).sum())(params)  # type: ignore[union-attr]
    assert slope["params"]["strength"] == (x + 3).sum()


def test_placements_with_a_norm_on_top_are_those_that_bound_nothing() -> None:
    """After "post" a row is normed already; "rezero" has no norms."""
    assert set(PLACEMENTS) - TOPPED == {"post", "rezero"}


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
