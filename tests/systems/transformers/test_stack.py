"""What Transformers share: where dropout is, and how their layers are run."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict

from attnlab.config.registry import build
from attnlab.systems import SYSTEMS

DECODER: dict[str, Any] = {
    "name": "decoder",
    "width": 8,
    "layers": 4,
    "hidden": 12,
    "positions": {"name": "sinusoidal"},
    "attention": {"name": "multihead", "heads": 2},
    "dropout": 0.0,
}
TOKENS = jnp.asarray([[1, 2, 3, 4, 5], [3, 2, 6, 0, 0]])


def decoder(**changes: Any) -> Any:
    return build(SYSTEMS, ConfigDict({**DECODER, **changes}), "system")(vocabulary=7)


@pytest.mark.parametrize(
    ("changes", "random"),
    [
        ({"dropout": 0.5}, True),
        ({"dropout": 0.5, "embedding_dropout": 0.0, "hidden_dropout": 0.0}, True),
        ({"embedding_dropout": 0.5}, True),
        ({"hidden_dropout": 0.5}, True),
        ({"hidden_dropout": 0.5, "feed_forward": "none"}, False),
        ({"dropout": 0.5, "embedding_dropout": 0.0, "feed_forward": "none"}, False),
        ({"attention": {"name": "multihead", "heads": 2, "dropout": 0.5}}, True),
    ],
)
def test_each_place_has_its_dropout(changes: dict[str, Any], random: bool) -> None:
    if changes.get("feed_forward"):
        changes = {**changes, "attention": {"name": "none"}}
    system = decoder(**{"layers": 1, **changes})
    params = jax.jit(system.init)(jax.random.key(0), TOKENS)
    one, other = (
        system.apply(params, TOKENS, rngs={"dropout": jax.random.key(seed)}) for seed in (0, 1)
    )
    assert bool(np.any(np.asarray(one != other))) == random
