"""RCTM I, by its equations, every channel of the sentence model on its own."""

import math
from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, affine, sigmoid


def rctm(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Kalchbrenner, Blunsom 2013: h_t = sigmoid(R h_{t-1} + I y_t + S v), o_t = O h_t."""
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b in range(len(source)):
        words = [params["embed_source"]["embedding"][index] for index in source[b][source[b] != 0]]
        biased = sentence(params["sentence"], settings, words) @ params["of_sentence"]["kernel"]
        state = np.zeros(len(biased))
        for t, token in enumerate(target_in[b]):
            word = affine(params["of_word"], params["embed_target"]["embedding"][token])
            state = sigmoid(state @ params["past"] + word + biased)
            logits[b, t] = affine(params["out"], state)
    return logits


def sentence(params: Tree, settings: dict[str, Any], words: list[Vector]) -> Vector:
    """The vector of a sentence: windows of 2, 3, ..., r, the widest again while more than r columns
    are left, then one for all.
    """
    widest = max(2, math.ceil(math.sqrt(2 * settings["longest"])))
    result = np.zeros(len(words[0]))
    for channel in range(len(result)):
        row = [word[channel] for word in words]
        for size in range(2, widest + 1):
            row = _convolved(row, params[f"window_{size}"][:, channel]) if len(row) >= size else row
        while len(row) > widest:
            row = _convolved(row, params[f"window_{widest}"][:, channel])
        result[channel] = (
            row[0] if len(row) == 1 else _convolved(row, params[f"top_{len(row)}"][:, channel])[0]
        )
    return result


def _convolved(row: list[float], window: Vector) -> list[float]:
    return [
        sigmoid(sum(window[j] * row[a + j] for j in range(len(window))))
        for a in range(len(row) - len(window) + 1)
    ]
