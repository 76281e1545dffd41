"""Tokens of a piece of a text go to the slots of blocks that the text would give them. What else is kept
of a text that is read in pieces is seen by `attention/test_mixer.py`, in pieces with padding inside.
"""

import jax
import numpy as np

from attnlab.layers.history import slots


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
