"""The BiLSTM with pooling, and what other classifiers of texts begin and end with."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, inputs, lstm, lstm_start


def bilstm_pooling(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target: np.ndarray | None = None
) -> np.ndarray:
    """Conneau et al. 2017: mean, maximum or end of the states; of two texts [p ; h ; |p - h| ; p
    * h].
    """
    logits = []
    for b in range(len(source)):
        vectors = [
            _pooled(params, settings.get("pooling", "mean"), ids[b])
            for ids in (source, target)
            if ids is not None
        ]
        logits.append(
            verdict(params["verdict"], vectors[0] if target is None else compared(*vectors))
        )
    return np.array(logits)


def _pooled(params: Tree, pooling: str, row: np.ndarray) -> Vector:
    states, ends = read(params["reader"], row)
    if pooling == "last":
        return ends
    if not states:
        return np.zeros_like(ends)
    if pooling == "mean":
        return sum(states[1:], states[0]) / len(states)
    return np.array([max(state[unit] for state in states) for unit in range(len(ends))])


def read(reader: Tree, row: np.ndarray) -> tuple[list[Vector], Vector]:
    """The states [forward ; backward] of the real words of a row, and the last state of each
    direction side by side.
    """
    words = [reader["embed"]["embedding"][word] for word in row[row != 0]]
    if "forward" not in reader["lstm"]:  # one direction
        layer = reader["lstm"]
        state, states = lstm_start(layer), []
        for word in words:
            state = lstm(layer, state, inputs(layer, word))
            states.append(state[1])
        return states, state[1]
    found, ends = {}, []
    for direction, order in (("forward", words), ("backward", words[::-1])):
        layer = reader["lstm"][direction]
        state, states = lstm_start(layer), []
        for word in order:
            state = lstm(layer, state, inputs(layer, word))
            states.append(state[1])
        found[direction] = states
        ends.append(state[1])
    found["backward"].reverse()
    return [
        np.concatenate(pair) for pair in zip(found["forward"], found["backward"], strict=True)
    ], np.concatenate(ends)


def bilstm_tagger(params: Tree, settings: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """Numbers of every token: a layer of W x + b over the states of n layers."""
    found = np.zeros((*tokens.shape, len(params["out"]["bias"])))
    for row, numbers in zip(tokens, found, strict=True):
        states, _ = read(params["reader"], row)
        for above in range(settings.get("layers", 1) - 1):
            states = again(params[f"above_{above}"], states)
        for place, state in enumerate(states):
            numbers[place] = state @ params["out"]["kernel"] + params["out"]["bias"]
    return found


def again(layers: Tree, given: list[Vector]) -> list[Vector]:
    """The states of a bidirectional layer over vectors."""
    sides = []
    for direction, order in (("forward", given), ("backward", given[::-1])):
        layer = layers[direction]
        state, states = lstm_start(layer), []
        for vector in order:
            state = lstm(layer, state, inputs(layer, vector))
            states.append(state[1])
        sides.append(states if direction == "forward" else states[::-1])
    return [np.concatenate(pair) for pair in zip(*sides, strict=True)]


def compared(p: Vector, h: Vector) -> Vector:
    """[p ; h ; |p - h| ; p * h]."""
    return np.concatenate([p, h, np.abs(p - h), p * h])


def verdict(params: Tree, features: Vector) -> Vector:
    """W_2 relu(W_1 x + b_1) + b_2."""
    units = features @ params["first"]["kernel"] + params["first"]["bias"]
    return np.maximum(units, 0.0) @ params["last"]["kernel"] + params["last"]["bias"]
