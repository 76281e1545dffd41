"""Networks that give pixels a class: whole forward passes against a float64 oracle, statistics of
batches, sizes.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.layers.norms import STATISTICS
from attnlab.systems import SYSTEMS
from attnlab.systems.vision.protocol import PixelClassifier
from tests.systems.checks import wide
from tests.systems.image_classifiers import CLASSES, images, parameters
from tests.systems.image_classifiers import SPECS as BACKBONES
from tests.systems.image_systems import OF_PIXELS as SPECS
from tests.systems.image_systems import make
from tests.systems.oracles import ORACLES


def test_every_classifier_of_pixels_has_an_oracle() -> None:
    kinds = {name: SYSTEMS.resolve(name) for name in SYSTEMS.names()}
    named = {name for name, kind in kinds.items() if issubclass(kind, PixelClassifier)}
    assert named == {spec["name"] for spec in SPECS.values()} <= set(ORACLES)


@pytest.mark.quick
@pytest.mark.parametrize("name", SPECS)
def test_logits_equal_the_papers(name: str) -> None:
    system, read = make(SPECS[name]), images()
    params, read = wide(parameters(system, read)), wide(read)
    with jax.enable_x64(True):
        found = jax.jit(system.apply)({"params": params}, jnp.asarray(read))
    expected = ORACLES["segmenter"](params, SPECS[name], read)
    assert found.shape == (*read.shape[:3], CLASSES)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    assert expected.std(axis=(1, 2)).min() > 1e-3


def test_rows_of_padding_change_nothing() -> None:
    """In training, where the norms of the backbone and at the pixels see the whole batch."""
    system, read = make(SPECS["segmenter-gated"]), images(rows=2)
    params = parameters(system, read)
    assert system.over_batch
    norms = {**SPECS["segmenter"], "normalisation": "layer_norm"}
    assert make(norms).over_batch  # of the backbone
    norms["backbone"] = {**BACKBONES["cnn"], "normalisation": "layer_norm"}
    assert not make(norms).over_batch and make({**norms, "normalisation": "batch_norm"}).over_batch
    assert not make({**norms, "normalisation": "batch_norm", "width": 0}).over_batch

    def both(params: Any, read: jax.Array) -> Any:
        more = jnp.concatenate([read, jnp.full_like(read[:1], 9.0)])
        valid = jnp.array([True, True, False])
        padded, _ = system.apply({"params": params}, more, valid, mutable=[STATISTICS])
        return padded[:2], system.apply({"params": params}, read, mutable=[STATISTICS])[0]

    padded, plain = jax.jit(both)(params, read)
    np.testing.assert_allclose(padded, plain, rtol=1e-4, atol=1e-5)


def test_sizes_that_make_no_network() -> None:
    with pytest.raises(UserError, match="segmenter: width=-1: expected at least 0"):
        spec = {**SPECS["segmenter"], "width": -1}
        jax.eval_shape(make(spec).init, jax.random.key(0), images())
