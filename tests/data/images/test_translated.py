"""Images at drawn places of larger ones: whole, exact, with pieces of others around them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data import SOURCES
from attnlab.data.images.shapes import Shapes
from attnlab.data.images.translated import Translated
from attnlab.errors import UserError
from tests.refusals import check_refused

FIELDS: dict[str, Any] = {"side": 12, "small": 3, "large": 4, "noise": 3}
FIELDS |= {"examples": 60, "valid": 9, "test": 5}
OF = {"name": "shapes", **FIELDS}


def made(**fields: Any) -> Translated:
    return SOURCES.resolve("translated")(**{"of": OF, "side": 20, **fields})  # type: ignore[no-any-return]


@pytest.mark.quick
def test_an_image_stands_whole_on_a_ground_of_zeros() -> None:
    """At one place, which is drawn from all that there are; labels are those of the source."""
    actual, inside = made().images("train"), Shapes(**FIELDS).images("train")
    assert actual.images.shape == (60, 20, 20, 3) and actual.images.dtype == np.uint8
    assert list(actual.labels) == list(inside.labels) and made().shape == (20, 20, 3)
    places = set()
    for image, small in zip(actual.images, inside.images, strict=True):
        # the ground of shapes is never 0
        rows, columns = (np.flatnonzero(image.any(axis=(axis, 2))) for axis in (1, 0))
        assert len(rows) == len(columns) == 12
        np.testing.assert_array_equal(image[np.ix_(rows, columns)], small)
        places.add((rows[0], columns[0]))
    assert {row for row, _ in places} == {column for _, column in places} == set(range(9))
    np.testing.assert_array_equal(actual.images, made().images("train").images)
    assert (actual.images != made(seed=1).images("train").images).any()


def test_clutter_are_pieces_of_the_split_below_the_image() -> None:
    plain, actual = made().images("valid"), made(clutter=2, piece=3).images("valid")
    inside = Shapes(**FIELDS).images("valid").images
    windows = np.lib.stride_tricks.sliding_window_view(inside, (3, 3), axis=(1, 2))
    pieces = {one.tobytes() for one in windows.reshape(-1, 3, 9).astype(np.uint8)}
    whole = more = 0
    for image, small in zip(actual.images, inside, strict=True):
        sums = np.lib.stride_tricks.sliding_window_view(image, (12, 12), axis=(0, 1))
        holds = (sums >= small.transpose(2, 0, 1)).all(axis=(2, 3, 4))
        assert holds.any()
        more += (image > 0).any(-1).sum() > 144  # unless all pieces lie within
        outside = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(0, 1))
        whole += any(one.tobytes() in pieces for one in outside.reshape(-1, 3, 9).astype(np.uint8))
    assert whole > 4 and 2 * more > len(inside) and (actual.images != plain.images).any()


def test_what_cannot_be_put_anywhere_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.side=9: the images of config.data.of are 12 x 12"):
        made(side=9).images("train")
    with pytest.raises(UserError, match=r"config.data.piece=13: .* are 12 x 12"):
        made(clutter=1, piece=13).images("train")
    check_refused(r"config.data.clutter=-1 must be in 0 ... 1000", made, clutter=-1)
    check_refused(r"config.data.of: Dates has no images", made(of="dates").images, "train")
    assert made(of="idx").shape is None
