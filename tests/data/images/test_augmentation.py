"""Random crops and turns: every image is a window of the padded one, turned or not, and all follow
from the key.
"""

import jax
import numpy as np
import pytest

from attnlab.data.images.augmentation import augmented, check_anywhere
from tests.refusals import check_refused

IMAGES = np.random.default_rng(0).integers(1, 256, (64, 4, 5, 2)).astype(np.uint8)


@pytest.mark.quick
def test_every_image_is_a_window_of_the_padded_one() -> None:
    actual = np.asarray(jax.jit(lambda key: augmented(key, IMAGES, 1, True))(jax.random.key(3)))
    assert actual.shape == IMAGES.shape and actual.dtype == np.uint8
    edged, seen = np.pad(IMAGES, ((0, 0), (1, 1), (1, 1), (0, 0))), set()
    for before, after in zip(edged, actual, strict=True):
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
    one, same, other = (augmented(jax.random.key(key), IMAGES, 2, False) for key in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    np.testing.assert_array_equal(augmented(jax.random.key(0), IMAGES, 0, False), IMAGES)


def test_what_is_shown_is_put_anywhere_as_a_whole() -> None:
    """Every place within the image as often as another one; an image that is empty stays so."""
    shown = np.array([[1, 0, 2], [0, 3, 0]], np.uint8)
    image = np.zeros((5, 6, 2), np.uint8)
    image[2:4, 3:6, 0] = shown
    images = np.stack([*[image] * 1600, np.zeros_like(image)])
    actual = np.asarray(
        jax.jit(lambda key: augmented(key, images, 0, False, anywhere=True))(jax.random.key(0))
    )
    assert not actual[-1].any() and not actual[..., 1].any()
    counts = np.zeros((4, 4), int)
    for one in actual[:-1, :, :, 0]:
        row, column = np.argwhere(one == 1)[0]
        assert one[row : row + 2, column : column + 3].tolist() == shown.tolist()
        assert np.count_nonzero(one) == 3
        counts[row, column] += 1
    assert (np.abs(counts - 100) < 40).all()  # four deviations


def test_images_that_reach_to_all_edges_cannot_be_put_anywhere() -> None:
    check_refused("config.augmentation.anywhere=true moves what is not 0", check_anywhere, IMAGES)
    for edge in ((5, 0), (5, slice(None), -1)):
        free = IMAGES.copy()
        free[edge] = 0
        check_anywhere(free)
