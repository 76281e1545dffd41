"""What the conformance suite runs over: every registered mechanism, in the settings worth a case, and the one table of tolerances."""

from __future__ import annotations

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention import MECHANISMS
from attnlab.attention.protocol import Attention

WIDTH = 12
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "single": [
        {"score": {"name": "additive", "hidden": 7}},
        {"score": {"name": "general"}},
        {"score": {"name": "concat", "hidden": 5}},
        {"score": {"name": "cosine", "strength": "emitted"}},
        {"score": {"name": "dot"}},
    ],
    "multihead": [
        {"heads": 3},
        {"heads": 1, "bias": True},
        {"heads": 6, "key_heads": 2},
        {"heads": 3, "positions": {"name": "shaw", "clip": 2}},
        {"heads": 6, "key_heads": 2, "positions": {"name": "transformer_xl"}},
        {"heads": 3, "positions": {"name": "t5", "buckets": 8, "max_distance": 6}},
        {"heads": 3, "positions": {"name": "alibi"}},
        {"heads": 3, "key_heads": 1, "positions": {"name": "rope", "layout": "half", "share": 0.5}},
        {"heads": 3, "score": {"name": "qk_rmsnorm"}, "positions": {"name": "rope"}},
        {"heads": 2, "score": {"name": "gaussian", "spread": "fixed", "tau": 3.0}},
        {"heads": 3, "key_heads": 1, "score": {"name": "soft_capped", "cap": 2.0, "score": {"name": "cosine", "strength": "emitted"}}},
        {"heads": 3, "alignment": {"name": "sparsemax"}},
        {"heads": 3, "alignment": {"name": "entmax"}},
        {"heads": 3, "alignment": {"name": "sink"}},
        {"heads": 3, "alignment": {"name": "sigmoid"}},
    ],
    "talking_heads": [{"heads": 3}],
    "differential": [{"heads": 4}],
    "gated": [{"heads": 3}, {"heads": 2, "gate": "head"}],
    "latent": [{"heads": 3, "latent": 5}, {"heads": 2, "latent": 3, "rotary": 4, "query_latent": 5, "positions": {"name": "rope"}}],
    "hops": [{"hops": 2, "hidden": 5}],
    "multi_step": [{"steps": 2, "looks": {"name": "multihead", "heads": 2}}],
}
CASES = [(name, config) for name in MECHANISMS.names() for config in SETTINGS.get(name, [{}])]
NAMES = [f"{name}-{json.dumps(config)}" for name, config in CASES]

NOT_LINEAR = {"differential": "a norm follows the weights, so that dropped weights do not average out"}

TOLERANCE = {"float32": 1e-6, "reordered": 2e-6, "gradient": 5e-6, "bfloat16": 1e-2, "float64": 1e-10}


def make(name: str, config: dict[str, Any]) -> Attention:
    """The mechanism of a case, WIDTH wide."""
    return MECHANISMS.resolve(name)(width=WIDTH, **config)


def parameters(module: Attention, seed: int = 0) -> Any:
    """Parameters drawn so that no path is silent: N(0, 1/rows) for every array, zero-initialised ones too."""
    x = jnp.zeros((1, 2, WIDTH))
    shapes = jax.eval_shape(module.init, jax.random.key(0), x, x).get("params", {})
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
