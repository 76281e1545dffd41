"""The systems of Luong et al. 2015, with the scores and alignments of the paper."""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import (
    Tree,
    Vector,
    affine,
    inputs,
    lstm,
    lstm_start,
    mean_of,
    sigmoid,
    softmax,
)
from tests.systems.oracles.seq2seq import both_stacks, through


def luong(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Luong, Pham, Manning 2015, section 3; `settings` has "order" and "feeding" as the system,
    "attention" a node of `single`.
    """
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b in range(len(source)):
        annotations, states = _read(params, settings, source[b][source[b] != 0])
        layers = [params["writer"][f"layer_{number}"] for number in range(settings["layers"])]
        a = np.zeros(len(annotations[0]))
        for t, word in enumerate(target_in[b]):
            given = inputs(layers[0], params["embed_target"]["embedding"][word])
            if settings.get("feeding", "input") == "input":
                given = given + a @ params["of_last"]["kernel"]
            lowest = lstm(layers[0], states[0], given)
            above, h = through(layers[1:], states[1:], lowest[1])
            states = [lowest, *above]
            context = _context(
                params.get("attention", {}), settings["attention"], t, h, annotations
            )
            a = np.tanh(np.concatenate([context, h]) @ params["combine"]["kernel"])
            logits[b, t] = affine(params["out"], a)
    return logits


def _read(
    params: Tree, settings: dict[str, Any], words: np.ndarray
) -> tuple[list[Vector], list[tuple[Vector, Vector]]]:
    """The outputs of the top layer, in the order of the source whatever the order of reading, and
    the last states of all layers.
    """
    layers = [params["reader"][f"layer_{number}"] for number in range(settings["layers"])]
    backwards = settings.get("order", "reversed") == "reversed"
    if settings.get("directions", 1) == 2:
        last, outputs = both_stacks(layers, list(params["embed_source"]["embedding"][words]))
        return outputs, last
    states, result = [lstm_start(layer) for layer in layers], {}
    for place in reversed(range(len(words))) if backwards else range(len(words)):
        states, result[place] = through(
            layers, states, params["embed_source"]["embedding"][words[place]]
        )
    return [result[place] for place in range(len(words))], states


def _context(
    params: Tree, settings: dict[str, Any], t: int, h: Vector, annotations: list[Vector]
) -> Vector:
    """c_t = sum_s a_t(s) hbar_s, equations 7 to 10; t counts from 0."""
    fit = params.get("score", {})
    score = settings["score"]
    alignment = settings.get("alignment", {"name": "softmax"})
    scores = np.array([_score(fit, score["name"], h, one, s) for s, one in enumerate(annotations)])
    count, weights = len(annotations), np.zeros(len(annotations))
    if alignment["name"] == "softmax":
        weights = softmax(scores)
    else:
        place = float(min(t, count - 1))  # local-m
        if alignment["name"] == "local_p":
            place = count * sigmoid(
                np.tanh(h @ params["alignment"]["w_position"]["kernel"])
                @ params["alignment"]["v"][:, 0]
            )
        reach = alignment["reach"]
        window = [s for s in range(count) if abs(s - int(np.floor(place))) <= reach]
        for s, weight in zip(window, softmax(scores[window]), strict=True):
            bell = (
                np.exp(-((s - place) ** 2) / (2 * (reach / 2) ** 2))
                if alignment["name"] == "local_p"
                else 1.0
            )
            weights[s] = weight * bell
    return mean_of(weights, annotations)


def _score(params: Tree, name: str, h: Vector, annotation: Vector, s: int) -> float:
    """dot, general, concat (equation 7) and location (equation 8)."""
    if name == "dot":
        return float(h @ annotation)
    if name == "general":
        return float(h @ params["w"]["kernel"] @ annotation)
    if name == "concat":
        return float(
            params["v"] @ np.tanh(np.concatenate([h, annotation]) @ params["w_a"]["kernel"])
        )
    return float((h @ params["w_l"]["kernel"])[s])
