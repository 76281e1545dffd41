"""Positions on a grid are one number for a row and a column, which schemes, mixers and slots read."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.positions.grid import Rope2D, Sinusoidal2D, on_grid, row_and_column
from attnlab.attention.view import View
from attnlab.errors import UserError
from attnlab.mixers import MIXERS
from tests.rounding import assert_close

STRIDE = 2**15


def test_a_number_is_a_row_and_a_column() -> None:
    at = on_grid(3, 4)
    assert at.dtype == np.int32 and len(set(at.tolist())) == 12
    rows, columns = row_and_column(at)
    np.testing.assert_array_equal(rows.reshape(3, 4), np.arange(3)[:, None] + np.zeros(4, int))
    np.testing.assert_array_equal(columns.reshape(3, 4), np.arange(4) + np.zeros((3, 1), int))
    moved = row_and_column(jnp.asarray(at) - 5 * STRIDE - 7)
    for one, other in zip(moved, (rows - 5, columns - 7), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(on_grid(1, 9), np.arange(9))
    with pytest.raises(UserError, match="1 x 16385 tokens; positions on a grid end at 16384"):
        on_grid(1, 2**14 + 1)


def test_scores_depend_on_how_far_apart_rows_and_columns_are() -> None:
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 1, 2, 12, 8)).astype(np.float32)

    @jax.jit
    def scores(at: Any, to: Any) -> jax.Array:
        of_query = Rope2D(base=20.0).apply({}, q, at, method="of_query")
        of_key = Rope2D(base=20.0).apply({}, k, to, method="of_key")
        return jnp.einsum("bhqd,bhkd->bhqk", of_query, of_key)

    at = on_grid(3, 4)
    here = scores(at, at)
    for rows, columns in ((3, -4), (-2, 100)):
        both = at + rows * STRIDE + columns
        assert_close(scores(both, both), here, eps=8)
        for alone in (rows * STRIDE, columns):
            assert np.abs(scores(at + alone, at) - here).max() > 1e-2
    np.testing.assert_array_equal(
        Rope2D().apply({}, q, np.zeros(12, np.int32), method="of_query"), q
    )


def test_halves_are_of_the_row_and_of_the_column() -> None:
    zeros = np.zeros((1, 12, 8), np.float32)
    at = on_grid(3, 4)
    actual = np.asarray(Sinusoidal2D().apply({}, zeros, at, method="embed")).reshape(3, 4, 8)
    for part, axis in ((actual[..., :4], 0), (actual[..., 4:], 1)):
        for i in range(part.shape[axis]):
            one = np.take(part, i, axis)
            np.testing.assert_array_equal(one, np.broadcast_to(one[:1], one.shape))
        first, second = (np.take(part, i, axis) for i in (0, 1))
        assert np.abs(first - second).max() > 0.5


def turns(name: str) -> bool:
    """Whether a mechanism turns queries and keys of one sequence, both ways."""
    can = MECHANISMS.resolve(name).capabilities
    return "query_key" in can.positions and "bidirectional" in can.directions


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("multihead", "latent") else pytest.param(name, marks=pytest.mark.full)
        for name in filter(turns, MECHANISMS.names())
    ],
)
def test_a_mixer_reads_the_places_of_its_view(name: str) -> None:
    """A whole text stands where the view says: tokens in another order, with their places, are the
    same text, and tokens at other places are not.
    """
    fields = {"rotary": 4} if name == "latent" else {}
    mixer = MECHANISMS.resolve(name)(width=16, **fields, positions=Rope2D)
    x = np.random.default_rng(1).normal(size=(1, 6, 16)).astype(np.float32)
    at, order = on_grid(2, 3), np.array([3, 5, 0, 1, 4, 2])
    init = jax.jit(lambda x, at: mixer.init(jax.random.key(0), x, View(positions=at), method="mix"))
    variables = init(x, at[None])
    mix = jax.jit(lambda x, at: mixer.apply(variables, x, View(positions=at), method="mix")[0])
    there = mix(x, at[None])
    np.testing.assert_allclose(mix(x[:, order], at[None, order]), there[:, order], atol=1e-5)
    assert np.abs(mix(x, np.arange(6, dtype=np.int32)[None]) - there).max() > 1e-4


def test_mixers_that_count_by_themselves_know_no_grid() -> None:
    chosen = {"positions": "rope_2d"}
    need = Need(role="self", direction="causal", places="grid", maps=False, mixes=True)
    with pytest.raises(UserError, match="Rope2D needs rows and columns"):
        need.check(MIXERS.resolve("retention"), "slot", chosen)


def test_bases_and_widths_that_turn_nothing() -> None:
    x = np.zeros((1, 1, 2, 6), np.float32)
    for scheme, words in (
        (Rope2D(), "a head width of 6, .* so that it is 8"),
        (Rope2D(base=1.0), "base=1.0, must be above 1"),
    ):
        with pytest.raises(UserError, match=words):
            scheme.apply({}, x, np.arange(2), method="of_query")
