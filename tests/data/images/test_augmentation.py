"""Random crops and turns: every image is a window of the padded one, turned or not, and all follow
from the key.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest

from attnlab.data.images.augmentation import augmented

IMAGES = np.random.default_rng(0).integers(1, 256, (64, 4, 5, 2)).astype(np.uint8)


@pytest.mark.quick
def test_every_image_is_a_window_of_the_padded_one() -> None:
    found = np.asarray(jax.jit(lambda key: augmented(key, IMAGES, 1, True))(jax.random.key(3)))
    assert found.shape == IMAGES.shape and found.dtype == np.uint8
    edged, seen = np.pad(IMAGES, ((0, 0), (1, 1), (1, 1), (0, 0))), set()
    for before, after in zip(edged, found, strict=True):
        windows = {
            (row, column, turn): before[row : row + 4, column : column + 5][:, ::turn]
            for row in range(3)
            for column in range(3)
            for turn in (1, -1)
        }
        (place,) = (at for at, one in windows.items() if np.array_equal(one, after))
        seen.add(place)
    assert len(seen) > 12  # of 18


def test_the_same_key_gives_the_same_and_nothing_is_the_image_itself() -> None:
    one, same, other = (
        np.asarray(augmented(jax.random.key(key), IMAGES, 2, False)) for key in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    np.testing.assert_array_equal(augmented(jax.random.key(0), IMAGES, 0, False), IMAGES)
