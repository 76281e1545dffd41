"""Sequence to Sequence, by section 2 of its paper."""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, affine, both_ways, inputs, lstm, lstm_start


def seq2seq(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Sutskever, Vinyals, Le 2014; `settings` has "order", "reversed" unless it says "plain"."""
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b in range(len(source)):
        words = list(source[b][source[b] != 0])
        if settings.get("order", "reversed") == "reversed" and settings.get("directions", 1) == 1:
            words.reverse()
        layers = [params["reader"][f"layer_{number}"] for number in range(settings["layers"])]
        embedded = [params["embed_source"]["embedding"][word] for word in words]
        if settings.get("directions", 1) == 2:
            states, _ = both_stacks(layers, embedded)
        else:
            states = [lstm_start(layer) for layer in layers]
            for x in embedded:
                states, _ = through(layers, states, x)
        layers = [params["writer"][f"layer_{number}"] for number in range(settings["layers"])]
        for t, word in enumerate(target_in[b]):
            states, top = through(layers, states, params["embed_target"]["embedding"][word])
            logits[b, t] = affine(params["out"], top)
    return logits


def through(
    layers: list[Tree], states: list[tuple[Vector, Vector]], x: Vector
) -> tuple[list[tuple[Vector, Vector]], Vector]:
    """One step of layers, each of which reads what the one below puts out: their states (c, h), and
    the output of the top one.
    """
    following = []
    for layer, state in zip(layers, states, strict=True):
        following.append(lstm(layer, state, inputs(layer, x)))
        x = following[-1][1]
    return following, x


def both_stacks(
    layers: list[Tree], words: list[Vector]
) -> tuple[list[tuple[Vector, Vector]], list[Vector]]:
    """Layers of two directions each: their last states (c, h), the forward half first, and the
    outputs of the top one.
    """
    last = []
    for layer in layers:
        words, ends = both_ways(layer, words)
        last.append(tuple(np.concatenate(half) for half in zip(*ends, strict=True)))
    return last, words
