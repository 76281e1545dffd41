"""ConvS2S, by its paper and the places where its authors' code says more."""

import math

import numpy as np

from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, Tree, Vector, of_each_row

Q = math.sqrt(0.5)


@of_each_row
def convs2s(params: Tree, settings: Settings, source: Vector, target_in: Vector) -> list[Vector]:
    """Gehring et al. 2017, with dot products; every convolution sums over its window word by
    word.
    """
    keys, values = _encoder(params, settings, source)
    words, m = _embedded(params, "target", target_in), len(keys)
    states = [_linear(params["into_decoder"], word) for word in words]
    for number in range(settings["decoder_layers"]):
        layer, before = params[f"decoder_{number}"], states
        states = []
        for t, (h, word) in enumerate(zip(before, words, strict=True)):
            window = _window(before, range(t + 1 - settings["kernel"], t + 1))
            u = _gated(layer["convolution"]["linear"], window)
            if "asks" in layer:  # a layer that looks
                asked = (_linear(layer["asks"], u) + word) * Q
                context = parts.mean_of(
                    parts.softmax(np.array([asked @ key for key in keys])), values
                )
                u = (_linear(layer["takes"], context * m * math.sqrt(1 / m)) + u) * Q
            states.append((u + h) * Q)
    return [_linear(params["out"], _linear(params["out_decoder"], h)) for h in states]


def _window(states: list[Vector], places: range) -> list[Vector]:
    """The states at these places, zeros beyond the ends."""
    nothing = np.zeros_like(states[0])
    return [states[place] if 0 <= place < len(states) else nothing for place in places]


def _encoder(params: Tree, settings: Settings, words: Vector) -> tuple[list[Vector], list[Vector]]:
    """Keys z and values (z + e) q of the words of one sentence."""
    embedded = _embedded(params, "source", words)
    states, side = [_linear(params["into_encoder"], e) for e in embedded], settings["kernel"] // 2
    for number in range(settings["encoder_layers"]):
        layer, before = params[f"encoder_{number}"]["convolution"]["linear"], states
        windows = [_window(before, range(t - side, t + side + 1)) for t in range(len(before))]
        gated = [_gated(layer, window) for window in windows]
        states = [(u + z) * Q for u, z in zip(gated, before, strict=True)]
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
    columns = [v[:, o] * g[o] / math.sqrt((v[:, o] ** 2).sum()) for o in range(v.shape[1])]
    return np.array([x @ column for column in columns]) + layer["bias"]


def _gated(layer: Tree, window: list[Vector]) -> Vector:
    """The linear unit over a window, its first half times the sigmoid of its second."""
    both = _linear(layer, np.concatenate(window))
    half = len(both) // 2
    return both[:half] * parts.sigmoid(both[half:])
