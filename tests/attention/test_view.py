"""Views say where tokens stand, in one number, one for each row or one for each token, and keep what
is known when they are combined; sums along keys are in the order of their positions.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import Memory
from attnlab.attention.view import (
    CAUSAL,
    EVERYTHING,
    View,
    after_each,
    in_order,
    out_of_order,
    token_positions,
)
from attnlab.attention.visibility import Causal, Segments, Window
from attnlab.errors import UserError
from tests.attention.visibility_oracles import CASES_BY_NAME, IDS, ROWS, T, mask

every_rule = pytest.mark.parametrize("name", CASES_BY_NAME)


def memory(rows: int, slots: int, length: Any, positions: Any = 0) -> Memory:
    written = np.arange(slots) < np.broadcast_to(length, (rows,))[:, None]
    return Memory(written, np.asarray(length, np.int32), positions=positions)  # type: ignore[arg-type]


@pytest.mark.quick
def test_a_number_a_number_for_each_row_or_a_position_for_each_token() -> None:
    for where, expected in (
        (3, [3, 4, 5]),
        (np.int32(0), [0, 1, 2]),
        (jnp.array([2, 7]), [[2, 3, 4], [7, 8, 9]]),
        (np.array([[5, 1, 9]]), [5, 1, 9]),
        (np.array([[5, 1, 9], [0, 0, 3]]), [[5, 1, 9], [0, 0, 3]]),
    ):
        actual = token_positions(where, 3)
        assert actual.dtype == jnp.int32
        np.testing.assert_array_equal(actual, expected)
        view = View(positions=where, keys=0, size=(3, 4))
        np.testing.assert_array_equal(view.i, expected)
        assert view.rows.ndim == 4 and view.rows.shape[1:] == (1, 3, 1)
        apart = np.arange(4) - np.asarray(expected)[..., None]
        np.testing.assert_array_equal(view.distance, apart)
        by_row = np.squeeze(view.columns - view.rows, axis=1)
        np.testing.assert_array_equal(by_row, apart if apart.ndim == 3 else apart[None])


@jax.jit
def allowed(i: Any, j: Any) -> dict[str, Any]:
    """What each rule allows; one program for all."""
    return {name: View(rule).allows(i, j) for name, (rule, _) in CASES_BY_NAME.items()}


@every_rule
def test_rows_may_stand_elsewhere(name: str) -> None:
    """Queries and keys of each row at positions of its own, or only one of the two, or all rows at the
    same; positions need not be neighbours, nor be in order.
    """
    _, predicate = CASES_BY_NAME[name]
    i, j = np.array([[7, 2, 5], [0, 8, 3]]), np.array([[8, 0, 3, 3], [1, 2, 3, 7]])

    def expected(i: Any, j: Any) -> np.ndarray:
        i, j = (np.broadcast_to(x, (ROWS, x.shape[-1])) for x in (i, j))
        return np.stack([mask(predicate, i[b], j[b])[b] for b in range(ROWS)])

    for queries, keys in ((i, j), (i, j[0]), (i[0], j), (i[0], j[0])):
        actual = allowed(queries, keys)[name]
        wanted = expected(queries, keys)
        actual = np.ones((), bool) if actual is None else actual
        np.testing.assert_array_equal(np.broadcast_to(actual, wanted.shape), wanted)


def test_the_last_query_stands_on_the_last_key_of_its_row() -> None:
    query = jnp.zeros((2, 2, 1))
    shared = CAUSAL.onto(memory(2, 5, 4), query)
    np.testing.assert_array_equal(shared.i, [2, 3])
    np.testing.assert_array_equal(shared.allowed()[0, 0], np.tri(2, 5, 2, bool))
    apart = CAUSAL.onto(memory(2, 5, [4, 2]), query)
    np.testing.assert_array_equal(apart.i, [[2, 3], [0, 1]])
    np.testing.assert_array_equal(apart.allowed()[:, 0], [np.tri(2, 5, 2), np.tri(2, 5, 0)])
    np.testing.assert_array_equal(apart.lengths, [4, 2])
    part = CAUSAL.onto(memory(2, 5, 4, np.int32(10)), query)
    np.testing.assert_array_equal(part.i, [12, 13])
    np.testing.assert_array_equal(part.j, np.arange(10, 15))
    np.testing.assert_array_equal(part.allowed(), shared.allowed())
    anywhere = memory(2, 3, 3, jnp.array([[4, 0, 2], [1, 2, 9]]))
    with pytest.raises(ValueError, match="say where the queries stand"):
        CAUSAL.onto(anywhere, query)
    placed = View(Causal(), positions=2).onto(anywhere, query)
    np.testing.assert_array_equal(
        placed.allowed()[:, 0], [[[0, 1, 1], [0, 1, 1]], [[1, 1, 0], [1, 1, 0]]]
    )


def test_segments_hold_whatever_the_rule() -> None:
    rules = {"all": EVERYTHING, "causal": CAUSAL, "near": View(Window(3))}
    for name, view in rules.items():
        packed = view & View(segments=jnp.asarray(IDS))
        same = Segments(jnp.asarray(IDS)).allows(jnp.arange(T), jnp.arange(T))
        alone = view.mask(T, T)
        np.testing.assert_array_equal(
            packed.mask(T, T), same if alone is None else same & alone, err_msg=name
        )
        assert not packed.everywhere(0, 1, 0, 1) and packed.touches(0, 3, 0, 3)
    assert not (CAUSAL & View(segments=jnp.asarray(IDS))).touches(0, 3, 4, 6)


def test_what_is_known_of_one_side_is_kept_and_of_both_refused() -> None:
    fields = {
        "positions": jnp.arange(2),
        "valid": np.ones((1, 3), bool),
        "segments": IDS,
        "trees": jnp.zeros((1, 3, 3), jnp.int32),
    }
    for name, value in fields.items():
        one = View(Window(2), **{name: value})
        for both in (CAUSAL & one, one & CAUSAL, CAUSAL | one, one | Causal(), Causal() & one):
            assert getattr(both, name) is value
        assert (one & one).rule == (Window(2) & Window(2))
        with pytest.raises(UserError, match=f"both sides of & or | have {name}"):
            one & View(**{name: value + 1 if name != "valid" else ~value})


def test_a_block_of_a_look_is_a_view_of_other_positions() -> None:
    look = CAUSAL.onto(memory(1, 6, 6), jnp.zeros((1, 6, 1)))
    block = look.among(look.i[4:], look.j[2:5])
    assert block.size == (2, 3)
    np.testing.assert_array_equal(block.distance, [[-2, -1, 0], [-3, -2, -1]])
    np.testing.assert_array_equal(block.i, [4, 5])
    rows = look.among(jnp.array([[4, 5], [1, 2]]), look.j[:3])
    assert rows.distance.shape == (2, 2, 3) and rows.columns.shape == (1, 1, 1, 3)


@pytest.mark.quick
def test_keys_out_of_order_are_summed_in_order_and_put_back() -> None:
    keys = np.array([[2, 0, 3, 1], [7, 6, 5, 4]], np.int32)
    x = np.arange(16.0, dtype=np.float32).reshape(2, 2, 4)
    for where, rows in ((keys, keys), (keys[:1], keys[[0, 0]])):
        moved, back = in_order(x, where)
        sums = np.asarray(out_of_order(after_each(moved), back))
        for b, h, slot in np.ndindex(x.shape):
            later = x[b, h][rows[b] > rows[b, slot]].sum()
            assert sums[b, h, slot] == later
    same, nothing = in_order(x, 3)
    assert same is x and nothing is None and out_of_order(x, None) is x
