"""Maps for an atlas have the statistics of their heads, and lie over the image of their example."""

from __future__ import annotations

import types

import numpy as np

from attnlab.analysis.atlases import MEANINGS, atlas_example, statistics_of
from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.maps import ImageExample


def test_a_map_has_the_statistics_of_its_heads() -> None:
    """A head that looks at the token before, and one that looks at itself; tokens are counted."""
    tokens = list("abca.")
    weights = np.stack([np.eye(5, k=-1), np.eye(5)]).astype(np.float32)
    weights[0, 0, 0] = 1
    records = statistics_of([{"layer_0": AttentionMap(weights, tokens, list(tokens))}] * 2)
    assert [x["previous_argmax"] for x in records] == [1.0, 0.0]
    assert [x["distance"] for x in records] == [0.8, 0.0] and records[0]["queries"] == 10


def test_an_image_is_under_the_maps_of_its_places() -> None:
    image = np.zeros((4, 6, 3), np.uint8)
    system = types.SimpleNamespace(between=lambda name: ("hops", "image"), map_sides=("hops", ""))
    task = types.SimpleNamespace(system=system, grid=None)
    map_ = AttentionMap(np.full((1, 1, 6), 1 / 6), ["hop 1"], [str(n) for n in range(6)])
    example = atlas_example(task, ImageExample("x.png", image, "cat"), {"glance": map_}, "run")
    (part,) = example.maps
    assert (example.title, example.model, part.grid) == ("x.png  ->  cat", "run", (2, 3))
    assert part.statistics.keys() == MEANINGS.keys()
    np.testing.assert_allclose(part.statistics["entropy"], [np.log(6)])
