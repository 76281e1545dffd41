"""Maps of classifiers of texts lie over the words of each text."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from tests.systems.classifiers import SOURCE, SPECS, TARGET, batch, prepared
from tests.systems.tiny import seldom


@pytest.mark.parametrize(
    "name",
    seldom(
        ("attention_pooling", "attention_pooling-multihead", "self_attentive"), "self_attentive"
    ),
)
def test_maps_of_both_texts(name: str) -> None:
    """A row for each look, hop or head; a text without a token is looked at nowhere."""
    _, params, system = prepared(SPECS[name], 2)
    ids = batch(2)
    look = jax.jit(lambda *ids: system.apply({"params": params}, *ids, mutable=[MAPS])[1])
    collected = look(*ids)
    maps = system.maps(collected[MAPS])
    expected = {"attention": ("hops", "source"), "attention_1": ("hops", "target_in")}
    assert {key: (one.rows, one.columns) for key, one in maps.items()} == expected
    rows = {"attention_pooling": 1, "attention_pooling-multihead": 2, "self_attentive": 3}[name]
    for one, ids_of, lengths in zip(maps.values(), ids, (SOURCE, TARGET), strict=True):
        assert one.weights.shape == (4, 1, rows, ids_of.shape[1])
        real = np.broadcast_to((np.array(lengths) > 0)[:, None], (4, rows))
        np.testing.assert_allclose(one.weights.sum(axis=(1, 3)), real, atol=1e-6)
        padding = np.broadcast_to((ids_of == 0)[:, None, None], one.weights.shape)
        assert not np.asarray(one.weights)[padding].any()
