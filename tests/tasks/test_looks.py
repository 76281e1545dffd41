"""What lies over an image."""

from __future__ import annotations

import numpy as np
import pytest

from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.looks import IMAGE, grid_of, over_image
from attnlab.tasks.protocol import Axis, Maps

IMAGE_8_6 = np.zeros((8, 6, 3), np.uint8)


@pytest.mark.parametrize(
    ("places", "size", "wanted"),
    [
        (48, (8, 6), (0, 8, 6)),  # every pixel
        (12, (8, 6), (0, 4, 3)),
        (13, (8, 6), (1, 4, 3)),  # with a class token
        (6, (8, 6), (0, 3, 2)),  # the last ones are cut
        (1, (8, 6), (0, 1, 1)),
        (7, (8, 6), (1, 3, 2)),
        (11, (8, 6), None),
    ],
)
def test_the_grid_follows_from_the_number_of_places(
    places: int, size: tuple[int, int], wanted: tuple[int, int, int] | None
) -> None:
    assert grid_of(places, *size) == wanted


def test_maps_onto_places_become_looks() -> None:
    rng = np.random.default_rng(0)
    words, own = (rng.random(shape).astype(np.float32) for shape in ((2, 3, 12), (1, 13, 13)))
    maps = {
        "cross": AttentionMap(words, "target", IMAGE),
        "own": AttentionMap(own, IMAGE, IMAGE),
        "text": AttentionMap(rng.random((1, 3, 3)), "target", "target"),
        "odd": AttentionMap(rng.random((1, 3, 11)), "target", IMAGE),
    }
    axes = {"target": Axis(["a", "red", "star"])}
    found = over_image(IMAGE_8_6, maps, axes)
    assert list(found) == ["cross", "own"]
    np.testing.assert_allclose(found["cross"].weights, words.mean(0).reshape(3, 4, 3), rtol=1e-6)
    assert found["cross"].rows == ["a", "red", "star"]
    assert found["own"].rows == ["class token", "all places"]
    wanted = np.stack([own[0, 0, 1:], own[0, 1:, 1:].mean(axis=0)]).reshape(2, 4, 3)
    np.testing.assert_allclose(found["own"].weights, wanted, rtol=1e-6)
    told = over_image(IMAGE_8_6, maps, {**axes, IMAGE: Axis([""] * 12, "places", (2, 6))})
    assert told["cross"].weights.shape == (3, 2, 6)
    named = Maps(maps, axes, {}, found)
    assert named.rows("cross") == ["a", "red", "star"] and named.columns("own")[12] == "12"
