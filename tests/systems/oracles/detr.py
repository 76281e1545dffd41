"""DETR (Carion et al. 2020), figure 10, image by image."""

from typing import Any

import numpy as np

from tests.attention.position_oracles import sinusoid
from tests.layers.oracles import feed_forward, norm_of
from tests.systems.oracles.parts import Tree, affine, heads_of, placed, sigmoid
from tests.systems.oracles.vision import MAPS


def detr(
    params: Tree, settings: dict[str, Any], images: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Logits [L,B,N,C+1] and boxes [L,B,N,4] of every layer of the decoder."""
    backbone = settings["backbone"]
    result = []
    for f in MAPS[backbone["name"]](params["backbone"], backbone, images):
        half = settings["width"] // 2
        places = [(i, j) for i in range(f.shape[0]) for j in range(f.shape[1])]
        x = np.array([affine(params["project"], f[place]) for place in places])
        p = np.array([[*sinusoid(i, half), *sinusoid(j, half)] for i, j in places])
        for number in range(settings["layers"]):
            x = _read(params[f"encoder_{number}"], settings, x, p)
        if "top_encoder" in params:
            x = norm_of("layer_norm", params["top_encoder"], x, 1e-6)
        o, layers = params["queries"], []
        y = np.zeros_like(o)
        for number in range(settings["decoder_layers"] or settings["layers"]):
            y = _written(params[f"decoder_{number}"], settings, y, o, x, p)
            states = norm_of("layer_norm", params["top_decoder"], y, 1e-6)
            box = np.maximum(affine(params["of_box_0"], states), 0)
            box = np.maximum(affine(params["of_box_1"], box), 0)
            box = sigmoid(affine(params["of_box_2"], box))
            layers.append((affine(params["of_class"], states), box))
        result.append(layers)
    logits, boxes = (
        np.array([[layer[of] for layer in one] for one in result]).swapaxes(0, 1) for of in (0, 1)
    )
    return logits, boxes


def _read(own: Tree, settings: dict[str, Any], x: np.ndarray, p: np.ndarray) -> np.ndarray:
    """A layer of the encoder."""
    heads = settings["heads"]
    functions = {
        "self": lambda x: heads_of(own["self_attention"], heads, x + p, x + p, x),
        "feed_forward": lambda x: feed_forward("relu", own["feed_forward"], x),
    }
    return placed(own, settings, x, functions, "layer_norm")


def _written(
    own: Tree, settings: dict[str, Any], y: np.ndarray, o: np.ndarray, x: np.ndarray, p: np.ndarray
) -> np.ndarray:
    """A layer of the decoder."""
    heads = settings["heads"]
    functions = {
        "self": lambda y: heads_of(own["self_attention"], heads, y + o, y + o, y),
        "cross": lambda y: heads_of(own["cross_attention"], heads, y + o, x + p, x),
        "feed_forward": lambda y: feed_forward("relu", own["feed_forward"], y),
    }
    return placed(own, settings, y, functions, "layer_norm")
