"""Recurrent glimpses (Mnih et al. 2014) without draws, and the perceptron beside them, image by image."""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, affine, inputs, lstm, lstm_start


def glimpses(params: Tree, settings: dict[str, Any], images: np.ndarray) -> np.ndarray:
    """Equations of section 3, each location at its mean."""
    logits = []
    for image in images:
        state, at = lstm_start(params["core"]), np.zeros(2)
        for _ in range(settings["glimpses"]):
            seen = [sensed(image, at, settings["size"], 2**j) for j in range(settings["scales"])]
            what = np.maximum(affine(params["what"], np.ravel(seen)), 0)
            where = np.maximum(affine(params["where"], at), 0)
            g = affine(params["of_what"], what) + affine(params["of_where"], where)
            state = lstm(params["core"], state, inputs(params["core"], np.maximum(g, 0)))
            at = np.tanh(affine(params["location"], state[1]))
        logits.append(affine(params["out"], state[1]))
    return np.array(logits)


def sensed(image: np.ndarray, at: np.ndarray, size: int, side: int) -> np.ndarray:
    """A patch: each of its pixels the area under it, pixel by pixel, over its own area."""
    height, width, channels = image.shape
    result = np.zeros((size, size, channels))
    for i in range(size):
        for j in range(size):
            top = (at[0] + 1) / 2 * height + (i - size / 2) * side
            left = (at[1] + 1) / 2 * width + (j - size / 2) * side
            for row in range(height):
                for column in range(width):
                    high = min(top + side, row + 1) - max(top, row)
                    broad = min(left + side, column + 1) - max(left, column)
                    if high > 0 and broad > 0:
                        result[i, j] += high * broad * image[row, column] / side**2
    return result


def perceptron(params: Tree, settings: dict[str, Any], images: np.ndarray) -> np.ndarray:
    """Products and relus over all numbers of an image."""
    logits = []
    for x in images:
        x = np.ravel(x)
        for number in range(len(settings["widths"])):
            x = np.maximum(affine(params[f"hidden_{number}"], x), 0)
        logits.append(affine(params["out"], x))
    return np.array(logits)
