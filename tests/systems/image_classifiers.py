"""Tiny classifiers of images, and what they read."""

from typing import Any

import numpy as np

from attnlab.systems.vision.protocol import ImageClassifier
from tests.systems.tiny import SIZES, drawn, make

__all__ = ["CLASSES", "ROWS", "SHAPES", "SPECS", "make", "parameters", "shape_of", "shown"]
CLASSES = SIZES[ImageClassifier]["classes"]
ROWS = 3
_CNN = {"name": "cnn", "widths": (3, 4), "layers": 1, "kernel": 3, "pooling": "max"}
_RESNET = {
    "name": "resnet",
    **{"stem": "cifar", "depth": 8, "block": "basic", "order": "post", "width": 2},
    **{"shortcut": "pad", "residual": True, "strided": "first"},
}
_HEADS = {"name": "multihead", "heads": 2}
_VIT = {
    **{"name": "vit", "positions": {"name": "learned", "length": 7}, "norm": "pre"},
    **{"patch": 2, "class_token": True, "width": 8, "layers": 2, "hidden": 6},
    "attention": {**_HEADS, "bias": True},
}
_DEEP = {**_RESNET, "block": "bottleneck", "depth": 11}
_GLIMPSES = {
    **{"name": "glimpses", "glimpses": 3, "size": 3, "scales": 2, "hidden": 4, "width": 5},
    **{"cell": "lstm", "deviation": 0.1},
}
SPECS: dict[str, dict[str, Any]] = {
    "cnn": _CNN,
    "cnn-mean": {**_CNN, "layers": 2, "kernel": 5, "pooling": "mean"},
    "resnet": _RESNET,
    "resnet-plain": {**_RESNET, "residual": False},
    "resnet-pre": {**_RESNET, "order": "pre"},
    "resnet-bottleneck": {**_DEEP, "shortcut": "project_all"},
    "resnet-pre-bottleneck": {**_DEEP, "order": "pre", "shortcut": "project", "strided": "second"},
    "resnet-gated": {**_RESNET, "gate": {"name": "se", "reduction": 2}},
    "resnet-pre-gated": {
        **_RESNET,
        **{"order": "pre", "gate": "spatial", "gated": (0, 2), "place": "after"},
    },
    "cnn-gated": {**_CNN, "gate": {"name": "non_local", "reduction": 2}, "gated": (1,)},
    "glimpses": _GLIMPSES,
    "glimpses-gru": {**_GLIMPSES, "cell": "gru", "glimpses": 1, "scales": 1},
    "perceptron": {"name": "perceptron", "widths": (5, 4)},
    "vit": _VIT,
    "vit-mean": {
        **_VIT,
        **{"class_token": False, "positions": "sinusoidal_2d", "norm": "sandwich"},
        "normalisation": {"name": "layer_norm", "epsilon": 1e-3},
    },
    "vit-rope": {
        **{**_VIT, "positions": "none", "feed_forward": "relu"},
        "attention": {**_HEADS, "bias": True, "positions": "rope_2d"},
    },
    "vit-linear": {**_VIT, "norm": "post", "attention": {"name": "linear", "heads": 2}},
    "vit-window": {
        **{**_VIT, "positions": "sinusoidal"},
        "visibility": {"name": "window", "width": 2},
    },
    "resnet-imagenet": {**_RESNET, "stem": "imagenet", "depth": 18, "shortcut": "project"},
}
SHAPES: dict[str, tuple[int, int, int]] = {"vit": (4, 6, 3)}
"""H, W, C' of the images that a system reads, where it is not the usual one."""


def shape_of(spec: dict[str, Any]) -> tuple[int, int, int]:
    """H, W, C' as small as the network reads them; for patches, 2 x 3 of them."""
    usual = (32, 33, 3) if spec.get("stem") == "imagenet" else (8, 9, 3)
    return SHAPES.get(spec["name"], usual)


def shown(spec: dict[str, Any], rows: int = ROWS) -> np.ndarray:
    """Images [rows,H,W,C'] of a shape that a system reads, float32."""
    noise = np.random.default_rng(1).normal(size=(rows, *shape_of(spec)))
    return noise.astype(np.float32)


def parameters(system: ImageClassifier, read: np.ndarray, seed: int = 0) -> Any:
    """Parameters with no silent path; variances are above 0."""

    def rule(path: str, noise: np.ndarray) -> np.ndarray:
        name = path.rpartition("/")[2]
        if name in ("kernel", "past"):
            return noise * (2 / np.prod(noise.shape[:-1])) ** 0.5
        around_zero = name in ("mean", "bias", "class_token", "table")
        return 0.3 * noise if around_zero else 0.5 + np.abs(noise)

    return drawn(system, read, seed=seed, rule=rule)
