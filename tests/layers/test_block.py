"""A block places its functions as is told: formulas in float64, what each placement leaves of x,
dropout on what functions give.
"""

import functools
import typing
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import pytest

from attnlab.layers.block import TOPPED, Block, Placement, Residual
from attnlab.layers.feedforward import Relu
from attnlab.layers.norms import LayerNorm
from tests.layers.oracles import feed_forward, norm_of
from tests.systems.oracles.parts import placed

PLACEMENTS = typing.get_args(Placement)
D = 6


class Doubled(nn.Module):
    """A mixer of a test: x W."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B,T,d] to [B,T,d]."""
        return nn.Dense(self.width, use_bias=False)(x)


def block(placement: Placement, dropout: float = 0.0) -> Block:
    mixers = (("one", Doubled), ("other_attention", Doubled))
    return Block(D, mixers, functools.partial(Relu, 5, dropout), LayerNorm, placement, dropout)


def run(module: Block, x: Any) -> jax.Array:
    """The block with its mixers asked as they are."""
    return module(x, module.one, module.other_attention)


@pytest.mark.quick
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_block_is_its_functions_in_order_each_placed_as_told(
    placement: Placement, float64: None
) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, D))
    module = block(placement)
    params = _params(module, x)

    product = lambda name: lambda x: x @ params[name]["Dense_0"]["kernel"]
    functions = {
        "one": product("one"),
        "other": product("other_attention"),
        "feed_forward": lambda x: feed_forward("relu", params["feed_forward"], x),
    }
    expected = placed(params, {"norm": placement}, x, functions)
    actual = jax.jit(nn.apply(run, module))({"params": params}, x)
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-11)


def _params(module: Block, x: np.ndarray) -> Any:
    rng = np.random.default_rng(3)
    shapes = jax.eval_shape(nn.init(run, module), jax.random.key(0), x)["params"]
    return jax.tree.map(lambda leaf: rng.normal(0.5, 1.0, size=leaf.shape), shapes)


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
    x = np.random.default_rng(1).normal(size=(1, 2, D)).astype(np.float32)
    module = block("rezero")

    @jax.jit
    def begun(key: jax.Array) -> Any:
        def total(params: Any) -> Any:
            y = nn.apply(run, module)({"params": params}, x)
            return y.sum(), y

        return jax.grad(total, has_aux=True)(nn.init(run, module)(key, x)["params"])

    slope, actual = begun(jax.random.key(0))
    np.testing.assert_array_equal(actual, x)
    for name in ("one", "other", "feed_forward"):
        assert abs(float(slope[f"around_{name}"]["strength"])) > 1e-3


def test_placements_with_a_norm_on_top_are_those_that_bound_nothing() -> None:
    """After "post" a row is normed already; "rezero" has no norms."""
    assert set(PLACEMENTS) - TOPPED == {"post", "rezero"}
