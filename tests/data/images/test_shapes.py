"""A coloured shape is where its scene says, exact to the pixel; all labels are as likely."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from attnlab.data import SOURCES
from attnlab.data.images.shapes import COLOURS, GROUND, SHAPES, Scene, Shapes, Thing, stamp

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
