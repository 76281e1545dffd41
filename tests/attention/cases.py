"""What the conformance suite runs over: every registered mechanism, in the settings worth a case, and the one table of tolerances."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention import MECHANISMS
from attnlab.attention.protocol import Attention

WIDTH = 12
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "additive": [{"hidden": 7}],
    "multihead": [{"heads": 3}, {"heads": 1, "bias": True}],
}
CASES = [(name, config) for name in MECHANISMS.names() for config in SETTINGS.get(name, [{}])]
NAMES = [f"{name}-{'-'.join(map(str, config.values()))}" for name, config in CASES]

TOLERANCE = {"float32": 1e-6, "gradient": 5e-6, "bfloat16": 1e-2, "float64": 1e-10}


def make(name: str, config: dict[str, Any]) -> Attention:
    """The mechanism of a case, WIDTH wide."""
    return MECHANISMS.resolve(name)(width=WIDTH, **config)


def parameters(module: Attention, seed: int = 0) -> Any:
    """Parameters drawn so that no path is silent: N(0, 1/rows) for every array, zero-initialised ones too."""
    x = jnp.zeros((1, 2, WIDTH))
    shapes = jax.eval_shape(module.init, jax.random.key(0), x, x)["params"]
    leaves, tree = jax.tree.flatten(shapes)
    rng = np.random.default_rng(seed)
    drawn = [rng.normal(size=leaf.shape).astype(np.float32) / np.sqrt(leaf.shape[0]) for leaf in leaves]
    return jax.tree.unflatten(tree, drawn)


def inputs(batch: int = 3, queries: int = 5, keys: int = 7, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit-variance query [B,Tq,WIDTH] and source [B,Tk,WIDTH], and `valid` [B,Tk] with a row of one real token."""
    rng = np.random.default_rng(seed)
    query, source = (rng.normal(size=(batch, length, WIDTH)).astype(np.float32) for length in (queries, keys))
    lengths = np.array([keys, 1, max(1, keys - 3)] + [keys] * batch)[:batch]
    return query, source, np.arange(keys)[None] < lengths[:, None]
