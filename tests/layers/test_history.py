"""What is kept of a sequence that is read in pieces."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from attnlab.layers.history import after, latest, places


def test_the_last_real_slots_are_kept() -> None:
    """Of two slots kept and pieces of three: none of the first row's is real, all of the second's,
    two of the third's.
    """
    slots = jnp.arange(15).reshape(3, 5)[..., None]
    found = latest(slots, jnp.asarray([0, 3, 2]), 2)
    np.testing.assert_array_equal(found[..., 0], [[0, 1], [8, 9], [12, 13]])


def test_a_piece_comes_behind_what_was_kept_in_its_own_dtype() -> None:
    joined = after(jnp.zeros((2, 3, 4)), jnp.ones((2, 1, 4), jnp.bfloat16))
    assert joined.shape == (2, 4, 4) and joined.dtype == jnp.bfloat16
    np.testing.assert_array_equal(joined.astype(jnp.float32)[0, :, 0], [0, 0, 0, 1])


def test_padding_takes_no_place() -> None:
    read = jnp.asarray([3, 0])
    at, after_it = places(read, 3, jnp.asarray([[True, False, True], [False, False, True]]))
    np.testing.assert_array_equal(at, [[3, 3, 4], [-1, -1, 0]])
    np.testing.assert_array_equal(after_it, [5, 1])
    at, after_it = places(read, 2, None)
    np.testing.assert_array_equal(at, [[3, 4], [0, 1]])
    np.testing.assert_array_equal(after_it, [5, 2])
