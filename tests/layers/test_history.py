"""Of a sequence that is read in pieces the last real slots are kept, each where the text has it; the token
before is the last real one, over padding and from piece to piece.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.history import after, latest, places, slots, token_before


def test_the_last_real_slots_are_kept() -> None:
    """Of two slots kept and pieces of three: none of the first row's is real, all of the second's,
    two of the third's.
    """
    slots = np.arange(15).reshape(3, 5)[..., None]
    actual = jax.jit(latest, static_argnums=2)(slots, np.array([0, 3, 2]), 2)
    np.testing.assert_array_equal(actual[..., 0], [[0, 1], [8, 9], [12, 13]])


def test_a_piece_comes_behind_what_was_kept_in_its_own_dtype() -> None:
    new = np.ones((2, 1, 4), jnp.bfloat16)
    joined = np.asarray(jax.jit(after)(np.zeros((2, 3, 4), np.float32), new))
    assert joined.shape == (2, 4, 4) and joined.dtype == jnp.bfloat16
    np.testing.assert_array_equal(joined.astype(np.float32)[0, :, 0], [0, 0, 0, 1])


def test_padding_takes_no_place() -> None:
    read, valid = np.array([3, 0]), np.array([[True, False, True], [False, False, True]])
    place = jax.jit(places, static_argnums=1)
    positions, after_it = place(read, 3, valid)
    np.testing.assert_array_equal(positions, [[3, 3, 4], [-1, -1, 0]])
    np.testing.assert_array_equal(after_it, [5, 1])
    positions, after_it = place(read, 2, None)
    np.testing.assert_array_equal(positions, [[3, 4], [0, 1]])
    np.testing.assert_array_equal(after_it, [5, 2])


def test_tokens_go_to_the_slots_that_the_text_would_give_them() -> None:
    """Blocks of 3: the first row has read 4, so it begins at slot 1; the second 3; padding takes no
    slot. From the beginning no slot is left out.
    """
    valid = np.array([[True, False, True], [True, True, True]])
    place = jax.jit(slots, static_argnums=2)
    token, slot, positions = place(np.array([4, 3]), valid, 3)
    np.testing.assert_array_equal(token, [[3, 0, 2, 3, 3, 3], [0, 1, 2, 3, 3, 3]])
    np.testing.assert_array_equal(np.asarray(slot)[valid], [1, 2, 0, 1, 2])
    np.testing.assert_array_equal(positions, np.arange(3, 9) + np.zeros((2, 1)))
    token, _, positions = place(None, valid, 3)
    np.testing.assert_array_equal(token, [[0, 2, 3], [0, 1, 2]])
    np.testing.assert_array_equal(positions, [[0, 1, 2], [0, 1, 2]])


@pytest.mark.quick
def test_the_token_before_is_the_last_real_one() -> None:
    rng = np.random.default_rng(0)
    x, valid = rng.normal(size=(3, 6, 2)).astype(np.float32), rng.random((3, 6)) < 0.6
    valid[2] = False
    first = rng.normal(size=(3, 1, 2)).astype(np.float32)
    expected, last = np.zeros_like(x), first[:, 0].copy()
    for t in range(6):
        expected[:, t] = last
        last = np.where(valid[:, t, None], x[:, t], last)
    actual, kept = jax.jit(token_before)(x, first, valid)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(kept[:, 0], last)
    actual, kept = jax.jit(token_before)(x, first)
    np.testing.assert_array_equal(actual, np.concatenate([first, x[:, :-1]], axis=1))
    np.testing.assert_array_equal(kept, x[:, -1:])
