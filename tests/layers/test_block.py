"""What each placement of a residual connection leaves of x, and dropout on what functions give. The
formulas of whole blocks are those of the oracles of systems (`placed`), in every placement.
"""

import typing
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.layers.block import TOPPED, Placement, Residual
from attnlab.layers.norms import LayerNorm
from tests.layers.oracles import norm_of

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
