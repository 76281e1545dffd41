"""Sequence to Sequence, by section 2 of its paper."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, lstm, lstm_start


def seq2seq(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target_in: np.ndarray
) -> np.ndarray:
    """Sutskever, Vinyals, Le 2014; `settings` has "order", "reversed" unless it says "plain"."""
    logits = np.zeros((*target_in.shape, params["out"]["kernel"].shape[1]))
    for b in range(len(source)):
        words = list(source[b][source[b] != 0])
        if settings.get("order", "reversed") == "reversed":
            words.reverse()
        layers = [params["reader"][f"layer_{number}"] for number in range(settings["layers"])]
        states = [lstm_start(layer) for layer in layers]
        for word in words:
            states, _ = through(layers, states, params["embed_source"]["embedding"][word])
        layers = [params["writer"][f"layer_{number}"] for number in range(settings["layers"])]
        for t, word in enumerate(target_in[b]):
            states, top = through(layers, states, params["embed_target"]["embedding"][word])
            logits[b, t] = top @ params["out"]["kernel"] + params["out"]["bias"]
    return logits


def through(
    layers: list[Tree], states: list[tuple[Vector, Vector]], x: Vector
) -> tuple[list[tuple[Vector, Vector]], Vector]:
    """One step of layers, each of which reads what the one below puts out: their states (c, h), and
    the output of the top one.
    """
    following = []
    for layer, state in zip(layers, states, strict=True):
        following.append(lstm(layer, state, x @ layer["of_input"]["kernel"]["kernel"]))
        x = following[-1][1]
    return following, x
