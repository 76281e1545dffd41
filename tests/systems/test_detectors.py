"""Networks that find objects: whole forward passes against a float64 oracle, maps, sizes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from attnlab.errors import UserError
from attnlab.systems import SYSTEMS
from attnlab.systems.vision.protocol import Detector
from tests.systems.checks import wide
from tests.systems.image_classifiers import CLASSES, images, parameters
from tests.systems.image_classifiers import SPECS as BACKBONES
from tests.systems.image_systems import DETECTORS as SPECS
from tests.systems.image_systems import make
from tests.systems.oracles import ORACLES

_DETR = SPECS["detr"]


def test_every_detector_has_an_oracle() -> None:
    kinds = {name: SYSTEMS.resolve(name) for name in SYSTEMS.names()}
    named = {name for name, kind in kinds.items() if issubclass(kind, Detector)}
    assert named == {spec["name"] for spec in SPECS.values()} <= set(ORACLES)


@pytest.mark.quick
@pytest.mark.parametrize("name", SPECS)
def test_answers_equal_the_papers(name: str) -> None:
    system, read = make(SPECS[name]), images(12)
    params, read = wide(parameters(system, read)), wide(read)
    with jax.enable_x64(True):
        found = jax.jit(system.apply)({"params": params}, jnp.asarray(read))
    expected = ORACLES["detr"](params, {**SPECS[name], "heads": 2}, read)
    assert found.logits.shape == (2, 2, 3, CLASSES + 1) and found.boxes.shape == (2, 2, 3, 4)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11)
        assert np.ptp(other, axis=2).min() > 1e-6  # queries differ


def test_maps_say_what_they_lie_between() -> None:
    system, read = make(_DETR), images(12)
    params = parameters(system, read)
    _, aside = jax.jit(lambda p: system.apply({"params": p}, read, mutable=[MAPS]))(params)
    found = {name: (one.query, one.key) for name, one in system.maps(aside[MAPS]).items()}
    assert found == {
        "encoder_0/self_attention": ("image", "image"),
        **{f"decoder_{layer}/self_attention": ("queries", "queries") for layer in (0, 1)},
        **{f"decoder_{layer}/cross_attention": ("queries", "image") for layer in (0, 1)},
    }
    assert system.over_batch
    spec = {**_DETR, "backbone": {**BACKBONES["cnn"], "normalisation": "layer_norm"}}
    assert not make(spec).over_batch


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"queries": 0}, "detr: queries=0: expected at least 1"),
        ({"positions": {"name": "learned", "length": 8}}, "a map of 3 x 3 places, but .* end at 8"),
    ],
)
def test_sizes_that_make_no_network(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        jax.eval_shape(make({**_DETR, **fields}).init, jax.random.key(0), images(12))
