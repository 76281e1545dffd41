"""A layer of settings says only what differs from the layers below it."""

from typing import Any

import pytest
from ml_collections import ConfigDict

from attnlab.config import choose, merge
from attnlab.errors import UserError

BASE = {
    "seed": 0,
    "training": {"steps": 100, "clip": 1.0},
    "schedule": {"name": "cosine", "peak": 1e-3, "warmup": 50},
    "optimizer": "adam",
}


COSINE = {"name": "cosine", "peak": 1e-3, "warmup": 50}
CONSTANT = {"name": "constant", "peak": 1.0}
LAYERS: list[tuple[Any, str, Any]] = [
    ({"training": {"steps": 7}}, "training", {"steps": 7, "clip": 1.0}),
    (ConfigDict({"training": {"steps": 7}}), "training", {"steps": 7, "clip": 1.0}),
    ({"schedule": {"peak": 1.0}}, "schedule", COSINE | {"peak": 1.0}),
    ({"schedule": {"name": "cosine", "warmup": 0}}, "schedule", COSINE | {"warmup": 0}),
    ({"schedule": CONSTANT}, "schedule", CONSTANT),
    ({"schedule": "constant"}, "schedule", "constant"),
    ({"optimizer": {"b2": 0.98}}, "optimizer", {"name": "adam", "b2": 0.98}),
    ({"optimizer": {"name": "adam", "b2": 0.98}}, "optimizer", {"name": "adam", "b2": 0.98}),
    ({"optimizer": {"name": "sgd"}}, "optimizer", {"name": "sgd"}),
    ({"seed": 3}, "seed", 3),
    ({"new": {"a": {"b": 1}}}, "new", {"a": {"b": 1}}),
]
"""Layers over `BASE`, the key that they change, and its value then."""


def test_a_layer_says_what_differs() -> None:
    for layer, key, value in LAYERS:
        assert merge(BASE, layer).to_dict() == {**BASE, key: value}


def test_parts_of_components_merge_too() -> None:
    system = {"name": "a", "attention": {"name": "single", "score": {"name": "dot", "scale": 1.0}}}
    layers = {"system": system}, {"system": {"attention": {"score": {"name": "additive"}}}}
    assert merge(*layers).to_dict() == {
        "system": {"name": "a", "attention": {"name": "single", "score": {"name": "additive"}}}
    }
    assert system["attention"]["score"]["name"] == "dot"  # type: ignore[index]  # the layer is as it was


def test_of_several_layers_the_last_counts_none_is_changed_and_a_reference_stays() -> None:
    one, two = {"a": {"x": 1, "y": 1}}, {"a": {"y": 2}}
    assert merge(one, two, {"a": {"x": 3}}).to_dict() == {"a": {"x": 3, "y": 2}}
    assert (one, two) == ({"a": {"x": 1, "y": 1}}, {"a": {"y": 2}})

    base = ConfigDict({"training": {"steps": 10}})
    base.warmup = base.training.get_ref("steps")
    merged = merge(base, {"seed": 0})
    merged.training.steps = 20
    assert merged.warmup == 20


def test_the_argument_names_an_entry() -> None:
    assert choose("a", {"a": 1, "b": 2}, "configs/x.py") == 1
    with pytest.raises(UserError, match="configs/x.py has no system 'lstn'; did you mean 'lstm'?"):
        choose("lstn", {"lstm": 1}, "configs/x.py")
