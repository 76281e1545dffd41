"""ConvS2S, by its paper and the places where its authors' code says more."""

import math
from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, sigmoid, softmax

Q = math.sqrt(0.5)


def convs2s(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Gehring et al. 2017, with dot products; every convolution sums over its window word by
    word.
    """
    logits = np.zeros((*target_in.shape, params["out"]["v"].shape[1]))
    for b in range(len(source)):
        keys, values = _encoder(params, settings, source[b][source[b] != 0])
        words = _embedded(params, "target", target_in[b])
        states = [_linear(params["into_decoder"], word) for word in words]
        for number in range(settings["decoder_layers"]):
            layer, before = params[f"decoder_{number}"], states
            states = []
            for t, (h, word) in enumerate(zip(before, words, strict=True)):
                window = [
                    before[t - j] if t >= j else np.zeros_like(h) for j in range(settings["kernel"])
                ][::-1]
                u = _gated(layer["convolution"]["linear"], window)
                if "asks" not in layer:  # a layer that does not look
                    states.append((u + h) * Q)
                    continue
                asked = (_linear(layer["asks"], u) + word) * Q
                weights = softmax(np.array([asked @ key for key in keys]))
                result = np.zeros_like(values[0])
                for weight, value in zip(weights, values, strict=True):
                    result += weight * value
                m = len(keys)
                u = (_linear(layer["takes"], result * m * math.sqrt(1 / m)) + u) * Q
                states.append((u + h) * Q)
        for t, h in enumerate(states):
            logits[b, t] = _linear(params["out"], _linear(params["out_decoder"], h))
    return logits


def _encoder(
    params: Tree, settings: dict[str, Any], words: np.ndarray
) -> tuple[list[Vector], list[Vector]]:
    """Keys z and values (z + e) q of the words of one sentence."""
    embedded = _embedded(params, "source", words)
    states, side = [_linear(params["into_encoder"], e) for e in embedded], settings["kernel"] // 2
    for number in range(settings["encoder_layers"]):
        before, states = states, []
        for t, z in enumerate(before):
            window = [
                before[t + j] if 0 <= t + j < len(before) else np.zeros_like(z)
                for j in range(-side, side + 1)
            ]
            states.append(
                (_gated(params[f"encoder_{number}"]["convolution"]["linear"], window) + z) * Q
            )
    keys = [_linear(params["out_encoder"], z) for z in states]
    return keys, [(key + e) * Q for key, e in zip(keys, embedded, strict=True)]


def _embedded(params: Tree, side: str, ids: np.ndarray) -> list[Vector]:
    """Word and, where there is a table, position."""
    table = params[f"embed_{side}"]["embedding"]
    places = params.get(f"positions_{side}", {}).get("table", np.zeros((len(ids), table.shape[1])))
    return [table[index] + places[t] for t, index in enumerate(ids)]


def _linear(layer: Tree, x: Vector) -> Vector:
    """x W + b, where column o of W is g_o v_o / |v_o|."""
    v, g = layer["v"], layer["g"]
    return np.array(
        [
            x @ v[:, o] * g[o] / math.sqrt((v[:, o] ** 2).sum()) + layer["bias"][o]
            for o in range(v.shape[1])
        ]
    )


def _gated(layer: Tree, window: list[Vector]) -> Vector:
    """The linear unit over a window, its first half times the sigmoid of its second."""
    both = _linear(layer, np.concatenate(window))
    half = len(both) // 2
    return both[:half] * sigmoid(both[half:])
