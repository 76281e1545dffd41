"""Systems of config nodes."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.config.registry import build
from attnlab.systems import SYSTEMS


def made(node: Mapping[str, Any], vocabulary: int) -> Any:
    """The system of a node, without an id for padding."""
    return build(SYSTEMS, node, "system")(vocabulary=vocabulary, pad_id=-1)


def shapes_of(node: Mapping[str, Any], vocabulary: int) -> Any:
    """The shapes of its parameters."""
    system, ids = made(node, vocabulary), jnp.zeros((1, 2), jnp.int32)
    return jax.eval_shape(lambda: system.init(jax.random.key(0), ids))["params"]
