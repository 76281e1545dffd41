"""Captions, boxes and masks of scenes are what the pixels show; what is held out is in the test and
nowhere else.
"""

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

from attnlab.data import SOURCES, SPLITS
from attnlab.data.generated import split_of
from attnlab.data.images.painted import COLOURS, GROUND, SHAPES, Scene, Size, Thing, stamp
from attnlab.data.images.scenes import NAMED, Scenes, relation
from tests.refusals import check_refused

SMALL: dict[str, Any] = {"examples": 120, "valid": 40, "test": 40, "side": 36, "grid": 3}
SMALL |= {"small": 3, "large": 5, "jitter": 2, "noise": 4}
AROUND = np.ones((3, 3))  # a pixel and all that touch it, by an edge or a corner


def made(**fields: Any) -> Scenes:
    return SOURCES.resolve("scenes")(**{**SMALL, **fields})  # type: ignore[no-any-return]


def islands(colours: np.ndarray) -> Iterator[np.ndarray]:
    """The connected sets of pixels of one colour, bool [H,W] each."""
    for colour in range(len(COLOURS)):
        numbers, count = ndimage.label(colours == colour, AROUND)
        yield from (numbers == number for number in range(1, count + 1))


def read(image: np.ndarray, grid: int) -> list[tuple[tuple[int, ...], str, str, str, np.ndarray]]:
    """What an image shows in reading order, from its pixels alone: cell, size, colour, shape and
    pixels of each object.
    """
    palette = np.array([(GROUND,) * 3, *COLOURS.values()])
    colours = np.abs(image[:, :, None].astype(int) - palette).max(axis=-1).argmin(axis=-1) - 1
    actual = []
    for island in islands(colours):
        cut, corner = trimmed(island)
        ((size, shape, middle),) = [
            (size, shape, corner - first + radius)
            for size, radius in (("small", 3), ("large", 5))
            for shape in SHAPES
            for whole, first in [trimmed(stamp(shape, radius))]
            if np.array_equal(whole, cut)
        ]
        cell = tuple((middle * grid // len(image)).tolist())
        colour = tuple(COLOURS)[colours[island][0]]
        actual.append((cell, size, colour, shape, island))
    return sorted(actual, key=lambda one: one[0])


def trimmed(mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A mask without its empty rows and columns, and its first row and column that are not."""
    ((rows, columns),) = ndimage.find_objects(mask.astype(int))
    return mask[rows, columns], np.array([rows.start, columns.start])


@pytest.mark.quick
def test_captions_boxes_and_masks_are_what_the_pixels_show() -> None:
    source = made(label="colour_shape")
    captioned, boxed = source.captions("valid"), source.objects("valid")
    segmented = source.masks("valid")
    assert captioned.shown is not None
    assert captioned.images.dtype == np.uint8 and captioned.images.shape == (40, 36, 36, 3)
    for images in (boxed.images, segmented.images):
        np.testing.assert_array_equal(images, captioned.images)
    assert boxed.classes == segmented.classes and len(boxed.classes) == 24
    for row, image in enumerate(captioned.images):
        things = read(image, 3)
        message = [f"a {size} {colour} {shape}" for _, size, colour, shape, _ in things]
        assert captioned.captions[row] == " and ".join(message)
        about = [one for number in range(len(things)) for one in (-1, *[number] * 4)]
        assert list(captioned.shown.words[row]) == about[1:]
        classes = np.zeros((36, 36), int)
        for number, (_, _, colour, shape, pixels) in enumerate(things):
            np.testing.assert_array_equal(captioned.shown.objects[row] == number + 1, pixels)
            classes[pixels] = 1 + segmented.classes.index(f"{colour} {shape}")
            assert boxed.labels[row][number] == f"{colour} {shape}"
            first, left, height, width = boxed.boxes[row][number]
            outside = pixels.copy()
            outside[first : first + height, left : left + width] = False
            assert pixels.any() and not outside.any()  # and no smaller box has all of them:
            edges = pixels[first, :], pixels[first + height - 1], pixels[:, left]
            assert all(edge.any() for edge in (*edges, pixels[:, left + width - 1]))
        np.testing.assert_array_equal(segmented.masks[row], classes)


def test_numbers_kinds_and_cells_are_as_likely_as_each_other() -> None:
    scenes = made(examples=3000, most=3).scenes("train")
    counts = Counter(len(scene.things) for scene in scenes)
    things = [thing for scene in scenes for thing in scene.things]
    assert sorted(counts) == [1, 2, 3]
    assert all(0.9 < 3 * count / 3000 < 1.1 for count in counts.values())
    for of, number in (("shape", 4), ("colour", 6), ("size", 2)):
        counts = Counter(getattr(thing, of) for thing in things)
        assert len(counts) == number
        assert all(0.85 < number * count / len(things) < 1.15 for count in counts.values())
    cells = Counter((thing.row // 12, thing.column // 12) for thing in things)
    assert len(cells) == 9 and all(0.8 < 9 * count / len(things) < 1.2 for count in cells.values())


def test_objects_are_whole_in_their_cells_and_do_not_touch() -> None:
    """With the sizes of the reference, where large objects are wider than a cell."""
    source = SOURCES.resolve("scenes")(examples=200)
    for scene in source.scenes("train"):
        cells = [(thing.row // 16, thing.column // 16) for thing in scene.things]
        assert cells == sorted(set(cells))
        masks = [source.mask(thing) for thing in scene.things]
        for one, other in itertools.permutations(masks, 2):
            assert not (one & ndimage.binary_dilation(other, AROUND)).any()
        for thing, mask in zip(scene.things, masks, strict=True):
            assert mask.sum() == stamp(thing.shape, source.radius(thing.size)).sum()


def test_what_is_held_out_is_in_every_scene_of_the_test_and_nowhere_else() -> None:
    source = made(held_out=("red star", "blue circle"))
    for split in SPLITS:
        pairs = [{f"{t.colour} {t.shape}" for t in scene.things} for scene in source.scenes(split)]
        actual = [bool(one & {"red star", "blue circle"}) for one in pairs]
        assert all(actual) if split == "test" else not any(actual)
        if split == "train":
            assert {pair for one in pairs for pair in one} >= {"red circle", "blue star"}


@pytest.mark.parametrize(
    ("row", "column", "words"),
    [
        *((0, 9, "left of"), (5, -9, "right of"), (9, 4, "above")),
        *((-9, 4, "below"), (9, 9, "above"), (-9, -9, "below")),
    ],
)
def test_relations(row: int, column: int, words: str) -> None:
    """By the axis on which they lie further apart; by the rows, if it is the same on both."""
    one = Thing("small", "red", "circle", 18, 18)
    other = Thing("large", "blue", "star", 18 + row, 18 + column)
    assert relation(one, other) == words
    told = made(relations=True).caption(Scene((one, other)))
    assert " ".join(word for word, _ in told) == f"a small red circle {words} a large blue star"
    assert [about for _, about in told] == [0] * 4 + [-1] * len(words.split()) + [1] * 4
    three = made(relations=True).caption(Scene((one, other, one)))
    assert [word for word, about in three if about < 0] == ["and", "and"]


def test_fewer_than_25_words() -> None:
    source = made(relations=True)
    words = {word for text in source.captions("train").captions for word in text.split()}
    assert words >= NAMED and len(words) < 25


def test_objects_without_room_and_scenes_too_few() -> None:
    check_refused("has every pair", made, held_out=tuple(Scenes(label="colour_shape").labels))
    crowded = made(large=7, small=7, fewest=9, most=9, jitter=2)
    check_refused("9 objects of these sizes find no room in 36 x 36", crowded.scenes, "train")
    others = tuple(f"{c} {s}" for c in COLOURS for s in SHAPES if (c, s) != ("red", "circle"))
    few = made(examples=20, valid=1, most=1, grid=1, jitter=0, held_out=others)
    sizes: tuple[Size, ...] = ("small", "large")
    kinds = [Scene((Thing(size, "red", "circle", 18, 18),)) for size in sizes]
    assert set(few.scenes("train")) == {one for one in kinds if split_of(repr(one)) == "train"}
    assert "valid" not in map(split_of, map(repr, kinds))
    check_refused("too few different scenes for the valid split", few.scenes, "valid")
