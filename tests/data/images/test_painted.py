"""A coloured shape is where its scene says, exact to the pixel, and all labels are as likely; images at
drawn places of larger ones are whole, exact, with pieces of others around them.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlab.data import SOURCES
from attnlab.data.images.painted import COLOURS, GROUND, SHAPES, Scene, Shapes, Thing, stamp
from tests.refusals import check_refused

SMALL: dict[str, Any] = {"examples": 300, "valid": 40, "test": 40, "side": 16}
SMALL |= {"small": 3, "large": 5, "noise": 4}


def made(**fields: Any) -> Shapes:
    return SOURCES.resolve("shapes")(**{**SMALL, **fields})  # type: ignore[no-any-return]


@pytest.mark.quick
def test_what_an_image_shows_is_what_its_label_says() -> None:
    """The pixels of the object, and of nothing else, have its colour, within the noise."""
    source = made()
    data = source.images("train")
    assert data.images.dtype == np.uint8 and data.images.shape == (300, 16, 16, 3)
    np.testing.assert_array_equal(data.images, made().images("train").images)
    for image, label, scene in zip(data.images, data.labels, source.scenes("train"), strict=True):
        (thing,) = scene.things
        assert label == f"{thing.colour} {thing.shape}"
        mask, radius = np.zeros((16, 16), bool), {"small": 3, "large": 5}[thing.size]
        stamped = stamp(thing.shape, radius)
        for row, column in np.argwhere(stamped) - radius + (thing.row, thing.column):
            mask[row, column] = True
        assert mask.sum() == stamped.sum()
        assert np.abs(image[mask].astype(int) - COLOURS[thing.colour]).max() <= 4
        assert np.abs(image[~mask].astype(int) - GROUND).max() <= 4
    shapes = [scene.things[0].shape for scene in source.scenes("test")]
    assert list(made(label="shape").images("test").labels) == shapes


def test_labels_sizes_and_places_are_as_likely_as_each_other() -> None:
    things = [scene.things[0] for scene in made(examples=4000).scenes("train")]
    for of, number in (("shape", 4), ("colour", 6), ("size", 2)):
        counts = Counter(getattr(thing, of) for thing in things)
        assert len(counts) == number
        assert all(0.8 < number * count / 4000 < 1.2 for count in counts.values())
    places = {(thing.row, thing.column) for thing in things if thing.size == "small"}
    assert {row for row, _ in places} == set(range(3, 13))


@pytest.mark.parametrize("radius", [3, 5, 9])
def test_no_shape_can_be_taken_for_another(radius: int) -> None:
    """Each differs from all others in a quarter of its pixels, and is the same from the left."""
    for one in SHAPES:
        mine = stamp(one, radius)
        np.testing.assert_array_equal(mine, mine[:, ::-1])
        for other in set(SHAPES) - {one}:
            assert (mine != stamp(other, radius)).sum() >= 0.25 * mine.sum()


def test_a_scene_of_several_things_is_painted_from_the_first_to_the_last() -> None:
    things = Thing("large", "red", "square", 6, 6), Thing("small", "blue", "square", 6, 6)
    image = made(noise=0).painted(Scene(things))
    assert tuple(image[6, 6]) == COLOURS["blue"] and tuple(image[2, 2]) == COLOURS["red"]
    assert tuple(image[0, 15]) == (GROUND,) * 3


FIELDS = {**SMALL, "side": 12, "large": 4, "noise": 3, "examples": 60, "valid": 9, "test": 5}
OF = {"name": "shapes", **FIELDS}


def placed(**fields: Any) -> Any:
    return SOURCES.resolve("translated")(**{"of": OF, "side": 20, **fields})


@pytest.mark.quick
def test_an_image_stands_whole_on_a_ground_of_zeros() -> None:
    """At one place, which is drawn from all that there are; labels are those of the source."""
    actual, inside = placed().images("train"), Shapes(**FIELDS).images("train")
    assert actual.images.shape == (60, 20, 20, 3) and actual.images.dtype == np.uint8
    assert list(actual.labels) == list(inside.labels) and placed().shape == (20, 20, 3)
    places = set()
    for image, small in zip(actual.images, inside.images, strict=True):
        # the ground of shapes is never 0
        rows, columns = (np.flatnonzero(image.any(axis=(axis, 2))) for axis in (1, 0))
        assert len(rows) == len(columns) == 12
        np.testing.assert_array_equal(image[np.ix_(rows, columns)], small)
        places.add((rows[0], columns[0]))
    assert {row for row, _ in places} == {column for _, column in places} == set(range(9))
    np.testing.assert_array_equal(actual.images, placed().images("train").images)
    assert (actual.images != placed(seed=1).images("train").images).any()


def test_clutter_are_pieces_of_the_split_below_the_image() -> None:
    plain, actual = placed().images("valid"), placed(clutter=2, piece=3).images("valid")
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
    words = r"data.side=9: the images of config.data.of are 12 x 12"
    check_refused(words, placed(side=9).images, "train")
    words = r"config.data.piece=13: .* are 12 x 12"
    check_refused(words, placed(clutter=1, piece=13).images, "train")
    check_refused(r"config.data.clutter=-1 must be in 0 ... 1000", placed, clutter=-1)
    check_refused(r"config.data.of: Dates has no images", placed(of="dates").images, "train")
    assert placed(of="idx").shape is None
