"""Tiny systems that answer questions about images, and what they read."""

from __future__ import annotations

import functools
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from attnlab.attention.protocol import MAPS
from attnlab.config.registry import build
from attnlab.systems import SYSTEMS
from attnlab.systems.protocol import AttentionMap
from attnlab.systems.vision.protocol import VisualAnswerer
from tests.systems.checks import alone, wide
from tests.systems.classifiers import CLASSES, VOCABULARY
from tests.systems.classifiers import batch as texts

GRID, SHAPE = (3, 4), (6, 9, 3)  # places of the feature map of an image
_BACKBONE = {"name": "cnn", "widths": (4,), "layers": 1, "kernel": 3, "pooling": "mean"}
_READ = {"backbone": _BACKBONE, "embedding": 5, "width": 6}
_ADDITIVE = {"name": "single", "score": {"name": "additive", "hidden": 5}}
_DOT = {"name": "single", "score": "dot"}
_HEADS = {"name": "multihead", "heads": 2}

SPECS: dict[str, dict[str, Any]] = {
    "cnn_lstm": {"name": "cnn_lstm", **_READ, "hidden": 7},
    "cnn_lstm-flat": {
        **{"name": "cnn_lstm", **_READ, "hidden": 7},
        **{"pooling": "flat", "coordinates": False},
    },
    "stacked_attention": {"name": "stacked_attention", **_READ, "attention": _ADDITIVE, "hops": 2},
    "co_attention": {
        **{"name": "co_attention", **_READ, "hidden": 5},
        **{"image_attention": _DOT, "question_attention": _DOT},
    },
    "bottom_up": {"name": "bottom_up", **_READ, "attention": _DOT, "hidden": 5},
    "bottom_up-product": {
        **{"name": "bottom_up", **_READ, "attention": _DOT, "hidden": 9, "cell": "lstm"},
        **{"joint": "product", "activation": "relu", "normalised": False},
    },
    "cross_attention": {
        **{"name": "cross_attention", "backbone": _BACKBONE, "width": 8, "hidden": 10},
        **{"layers": 2, "image_layers": 1, "dropout": 0.0, "feed_forward": "relu"},
        **{"question_attention": _HEADS, "cross_attention": _HEADS, "image_attention": _HEADS},
        **{"positions": {"name": "learned", "length": 12}},
        **{"image_positions": {"name": "learned", "length": 14}},
    },
}


class Pass(NamedTuple):
    """Of one batch: logits [B,C], maps, and gradients of the sum of their squares."""

    logits: np.ndarray
    maps: dict[str, AttentionMap]
    gradients: Any


def make(spec: dict[str, Any]) -> VisualAnswerer:
    """A tiny system."""
    system: VisualAnswerer = build(SYSTEMS, ConfigDict(spec), "system")(
        vocabulary=VOCABULARY, classes=CLASSES
    )
    return system


def batch(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Images [4,6,9,3] and questions [4,8]: rows of several lengths, one of them without a word."""
    images = np.random.default_rng(seed).normal(size=(4, *SHAPE))
    return images.astype(np.float32), np.pad(texts(1, seed)[0], ((0, 0), (0, 2)))


def parameters(system: VisualAnswerer, seed: int = 0) -> Any:
    """Parameters with no silent path; variances and scales are above 0."""
    shapes = alone(jax.eval_shape(system.init, jax.random.key(0), *batch()))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    rng = np.random.default_rng(seed)

    def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
        noise = rng.normal(size=shape)
        if name in ("variance", "scale"):
            return 0.5 + np.abs(noise)
        return 0.3 * noise if name in ("mean", "bias") else 2 * noise / np.sqrt(shape[0])

    return jax.tree.unflatten(tree, [drawn(path[-1].key, one.shape) for path, one in leaves])


@functools.cache
def _compiled(spec: str) -> tuple[Any, Any]:
    system = make(json.loads(spec))
    names: list[tuple[str, str, str]] = []

    @jax.jit
    def run(params: Any, images: jax.Array, questions: jax.Array) -> Any:
        def total(params: Any) -> Any:
            logits, left = system.apply({"params": params}, images, questions, mutable=[MAPS])
            maps = system.maps(dict(left).get(MAPS, {}))
            names[:] = [(name, one.query, one.key) for name, one in maps.items()]
            return (logits**2).sum(), (logits, {name: one.weights for name, one in maps.items()})

        return jax.value_and_grad(total, has_aux=True)(params)

    def call(params: Any, images: np.ndarray, questions: np.ndarray) -> Pass:
        with jax.enable_x64(True):
            (_, (logits, maps)), gradients = jax.device_get(
                run(wide(params), jnp.asarray(wide(images)), jnp.asarray(questions))
            )
        named = {name: AttentionMap(maps[name], query, key) for name, query, key in names}
        return Pass(np.asarray(logits), named, gradients)

    return call, parameters(system)


def prepared(spec: dict[str, Any]) -> tuple[Any, Any]:
    """`call(params, images, questions)` to a `Pass` in float64, compiled once, and parameters."""
    return _compiled(json.dumps(spec, sort_keys=True))
