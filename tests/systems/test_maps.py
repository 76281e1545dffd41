"""Systems say between what their maps lie; a map is a distribution over what is no padding.

Of captioners, language models and sequence-to-sequence systems the checks of their kind ask it.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from tests.systems import classifiers, image_systems, visual_answerers
from tests.systems.tiny import make, seldom

READERS = {
    "readers/encoder/attention": ("source", "source"),
    "readers/decoder/attention": ("target_in", "target_in"),
}
BOTH = {"attention": ("hops", "source"), "attention_1": ("hops", "target_in")}
SIDES: dict[str, tuple[Any, dict[str, tuple[str, str]]]] = {
    "attention_pooling": (classifiers, BOTH),
    "attention_pooling-multihead": (classifiers, BOTH),
    "self_attentive": (classifiers, BOTH),
    "lstmn_pair-deep": (
        classifiers,
        {**READERS, "readers/decoder/inter_attention": ("target_in", "source")},
    ),
    "lstmn_pair-shallow": (
        classifiers,
        {**READERS, "readers/inter_attention": ("target_in", "source")},
    ),
    "detr": (
        image_systems,
        {
            "encoder_0/self_attention": ("image", "image"),
            **{f"decoder_{layer}/self_attention": ("queries", "queries") for layer in (0, 1)},
            **{f"decoder_{layer}/cross_attention": ("queries", "image") for layer in (0, 1)},
        },
    ),
    "vit": (image_systems, {f"layer_{n}/attention": ("image", "image") for n in (0, 1)}),
    "cnn_lstm": (visual_answerers, {}),
    "stacked_attention": (
        visual_answerers,
        {f"attention_{hop}": ("hops", "image") for hop in (0, 1)},
    ),
    "co_attention": (
        visual_answerers,
        {
            f"{level}/{side}_attention": ("hops", side)
            for level in ("word", "phrase", "sentence")
            for side in ("image", "question")
        },
    ),
    "bottom_up": (visual_answerers, {"attention": ("hops", "image")}),
    "cross_attention": (
        visual_answerers,
        {
            "image_0/self_attention": ("image", "image"),
            **{
                f"question_{layer}/{of}_attention": ("joined", key)
                for layer in (0, 1)
                for of, key in (("self", "joined"), ("cross", "image"))
            },
        },
    ),
}
"""By setting: its room, and query and key of every map."""
PLACES = {"detr": 9, "vit": 7}  # of an image, the class token among them; others have 3 x 4
ROWS = {"self_attentive": 3, "attention_pooling-multihead": 2}  # of a hop or head for each
DEFAULT = ("self_attentive", "lstmn_pair-deep", "stacked_attention", "detr", "vit")


def read_by(room: Any, name: str) -> tuple[Any, ...]:
    """What a setting reads."""
    if room is image_systems:
        return (image_systems.shown(room.SPECS[name]),)
    return tuple(room.batch(2)) if room is classifiers else room.batch()


@pytest.mark.parametrize("name", seldom(SIDES, *DEFAULT))
def test_maps_lie_between_what_they_name(name: str) -> None:
    """A row for each look, hop or head; a text without a token is looked at nowhere."""
    room, sides = SIDES[name]
    system, read = make(room.SPECS[name]), read_by(room, name)
    beside = {classifiers: (2,), image_systems: read}.get(room, ())
    params = room.parameters(system, *beside)
    look = jax.jit(functools.partial(system.apply, mutable=[MAPS]))
    maps = system.maps(look({"params": params}, *read)[1].get(MAPS, {}))
    assert {key: (one.rows, one.columns) for key, one in maps.items()} == sides
    texts = dict(zip(("source", "target_in"), read, strict=False)) if room is classifiers else {}
    if room is visual_answerers:
        joined = np.pad(read[1], ((0, 0), (1, 0)), constant_values=1)
        texts = {"question": read[1], "joined": joined}
        assert system.grid(visual_answerers.SHAPE) == visual_answerers.GRID
    lengths = {"image": PLACES.get(name, 12), "queries": 3, "hops": ROWS.get(name, 1)}
    lengths |= {key: ids.shape[1] for key, ids in texts.items()}
    for map_name, one in maps.items():
        weights = np.asarray(one.weights)
        assert weights.shape[0::2] == (len(read[0]), lengths[one.rows]), map_name
        assert weights.shape[3] == lengths[one.columns], map_name
        real = (
            texts[one.columns] != 0 if one.columns in texts else np.ones(weights.shape[::3], bool)
        )
        assert not weights[np.broadcast_to(~real[:, None, None], weights.shape)].any()
        if one.rows != one.columns or one.columns not in (
            "source",
            "target_in",
        ):  # a past may be empty
            sums = np.broadcast_to(real.any(axis=1)[:, None, None], weights.shape[:3])
            np.testing.assert_allclose(weights.sum(axis=-1), sums, atol=1e-6)
