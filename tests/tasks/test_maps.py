"""What lies over an image."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.maps import IMAGE, Chosen, grid_of, over_image
from tests.refusals import check_refused

IMAGE_8_6 = np.zeros((8, 6, 3), np.uint8)


@pytest.mark.parametrize(
    ("places", "size", "expected"),
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
    places: int, size: tuple[int, int], expected: tuple[int, int, int] | None
) -> None:
    assert grid_of(places, *size) == expected


def test_maps_onto_places_lie_over_the_image() -> None:
    rng = np.random.default_rng(0)
    words, within = (rng.random(shape).astype(np.float32) for shape in ((2, 3, 12), (1, 13, 13)))
    labels, places = ["a", "red", "star"], [""] * 13
    maps = {
        "cross": AttentionMap(words, labels, places[:12]),
        "self": AttentionMap(within, places, places),
        "text": AttentionMap(rng.random((1, 3, 3)), labels, labels),
        "odd": AttentionMap(rng.random((1, 3, 11)), labels, places[:11]),
    }
    sides = {"self": (IMAGE, IMAGE), "text": ("target", "target")}
    system: Any = SimpleNamespace(between=lambda name: sides.get(name, ("target", IMAGE)))
    over = over_image(system, IMAGE_8_6, maps)
    assert list(over) == ["cross", "self"] and over["cross"].image is IMAGE_8_6
    np.testing.assert_allclose(over["cross"].weights, words.mean(0).reshape(3, 4, 3), rtol=1e-6)
    assert over["cross"].rows == ["a", "red", "star"]
    assert over["self"].rows == ["class token", "all places"]
    expected = np.stack([within[0, 0, 1:], within[0, 1:, 1:].mean(axis=0)]).reshape(2, 4, 3)
    np.testing.assert_allclose(over["self"].weights, expected, rtol=1e-6)
    assert over_image(system, IMAGE_8_6, maps, (2, 6))["cross"].weights.shape == (3, 2, 6)


def test_chosen_maps_have_the_chosen_heads_and_rows_and_mistakes_one_line() -> None:
    weights = np.random.default_rng(0).random((1, 3, 4, 5))
    maps = {name: AttentionMap(weights) for name in ("layer_0/attention", "layer_1/attention")}
    maps["layer_2/mixer"] = AttentionMap(weights, kind="sensitivity")
    chosen = Chosen(("layer_1/*", "layer_2/*"), heads=(2, 0), rows=(3,), kinds=("exact",))
    ((name, actual),) = chosen.among(maps).items()
    assert name == "layer_1/attention"
    np.testing.assert_array_equal(actual.weights, weights[:, [2, 0]][:, :, [3]])
    assert list(Chosen().among(maps)) == list(maps)
    for wrong, words in (
        (Chosen(("layer_9",)), "no map fits 'layer_9'; there are layer_0/attention, layer_1/"),
        (Chosen(heads=(3,)), "layer_0/attention has no head 3; heads are 0 to 2"),
        (Chosen(rows=(0, -1)), "layer_0/attention has no row -1; rows are 0 to 3"),
    ):
        check_refused(words, wrong.among, maps)
