"""Tiny systems that write a text for an image, and what they read."""

from __future__ import annotations

import functools
import json
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from attnlab.config.registry import build
from attnlab.systems import SYSTEMS
from attnlab.systems.vision.captioner import Captioner
from tests.systems.checks import alone

VOCABULARY = 11
FEATURES = 5
_CNN = {"name": "cnn", "widths": (4, FEATURES)}
_ADDITIVE = {"name": "single", "score": {"name": "additive", "hidden": 6}}
_HARD = {**_ADDITIVE, "alignment": {"name": "hard"}}
_HEADS = {"name": "multihead", "heads": 2}
_SMALL = {"backbone": _CNN, "features": FEATURES, "embedding": 6, "width": 7}
_TRANSFORMER = {
    "name": "captioning_transformer",
    "backbone": _CNN,
    "width": 8,
    "layers": 1,
    "hidden": 12,
    "positions": {"name": "sinusoidal"},
    "dropout": 0.0,
    **{f"{slot}_attention": _HEADS for slot in ("encoder", "decoder", "cross")},
    "scaled_embedding": False,
}

SPECS: dict[str, dict[str, Any]] = {
    "show_attend_tell": {"name": "show_attend_tell", **_SMALL, "attention": _ADDITIVE},
    "show_attend_tell-vector": {
        "name": "show_attend_tell",
        **_SMALL,
        "attention": _ADDITIVE,
        "gate": "vector",
    },
    "show_attend_tell-none": {
        "name": "show_attend_tell",
        **_SMALL,
        "attention": _ADDITIVE,
        "gate": "none",
    },
    "show_attend_tell-non_local": {
        "name": "show_attend_tell",
        **_SMALL,
        "backbone": {**_CNN, "gate": {"name": "non_local", "reduction": 2}, "gated": (1,)},
        "attention": _ADDITIVE,
    },
    "show_attend_tell-hard": {"name": "show_attend_tell", **_SMALL, "attention": _HARD},
    "top_down": {"name": "top_down", **_SMALL, "attention": _ADDITIVE},
    "captioning_transformer": _TRANSFORMER,
    "captioning_transformer-decoder": {
        **_TRANSFORMER,
        **{"encoder_attention": {"name": "none"}, "decoder_layers": 2, "share": "none"},
    },
}


def make(spec: dict[str, Any]) -> Captioner:
    """A tiny system."""
    system: Captioner = build(SYSTEMS, ConfigDict(spec), "system")(target_vocabulary=VOCABULARY)
    return system


def images(seed: int = 1) -> np.ndarray:
    """[3,8,12,3], so that there are 2 x 3 places."""
    return np.random.default_rng(seed).normal(size=(3, 8, 12, 3)).astype(np.float32)


def regions(seed: int = 1) -> np.ndarray:
    """[3,6,D]; of the second and the third there are 4 and 1, then zeros."""
    found = np.random.default_rng(seed).normal(size=(3, 6, FEATURES)).astype(np.float32)
    found[1, 4:], found[2, 1:] = 0, 0
    return found


def words(seed: int = 1) -> np.ndarray:
    """Decoder input [3,5], BOS first."""
    target = np.random.default_rng(seed).integers(4, VOCABULARY, (3, 5)).astype(np.int32)
    target[:, 0] = 1
    return target


def parameters(system: Captioner, read: np.ndarray, seed: int = 0) -> Any:
    """Parameters with no silent path; variances are above 0, and so are most features."""
    shapes = alone(jax.eval_shape(system.init, jax.random.key(0), read, words()))
    leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
    rng = np.random.default_rng(seed)

    def drawn(path: Any, shape: tuple[int, ...]) -> np.ndarray:
        name = path[-1].key
        noise = rng.normal(size=shape).astype(np.float32)
        if name in ("variance", "g"):
            return np.float32(1) + np.float32(0.3) * np.abs(noise)
        if name == "bias" and path[0].key == "backbone":
            return np.float32(1) + np.float32(0.3) * noise
        return noise / np.float32(max(1, np.prod(shape[:-1])) ** 0.5)

    return jax.tree.unflatten(tree, [drawn(path, one.shape) for path, one in leaves])


@functools.cache
def _made(spec: str, of: str) -> tuple[Any, Any, Any]:
    system = make(json.loads(spec))
    read = images() if of == "images" else regions()
    params = parameters(system, read)

    @functools.partial(jax.jit, static_argnames=("method", "mutable"))
    def compiled(params: Any, *arguments: Any, method: str, mutable: tuple[str, ...]) -> Any:
        return system.apply(
            {"params": params}, *arguments, method=method, mutable=list(mutable) or False
        )

    def call(*arguments: Any, method: str = "__call__", mutable: tuple[str, ...] = ()) -> Any:
        if method == "start":  # its length is no array
            return system.apply({"params": params}, *arguments, method=method)
        return compiled(params, *arguments, method=method, mutable=mutable)

    return call, system, params


def made(spec: dict[str, Any], of: str = "images") -> tuple[Any, Captioner, Any]:
    """`call(*args, method=..., mutable=...)` with parameters bound, compiled; the system; and its
    parameters, those for "images" or for "regions".
    """
    return _made(json.dumps(spec, sort_keys=True), of)
