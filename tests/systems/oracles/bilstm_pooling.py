"""The BiLSTM with pooling, and what other classifiers of texts begin and end with."""

from typing import Any

import numpy as np

from tests.systems.oracles.parts import Tree, Vector, affine, both_ways, passed


def bilstm_pooling(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target: np.ndarray | None = None
) -> np.ndarray:
    """Conneau et al. 2017: mean, maximum or end of the states; of two texts [p ; h ; |p - h| ; p
    * h].
    """
    pooling = settings.get("pooling", "mean")

    def pooled(states: list[Vector], ends: Vector) -> Vector:
        if pooling == "last":
            return ends
        if not states:
            return np.zeros_like(ends)
        return (
            np.max(states, axis=0) if pooling == "max" else sum(states[1:], states[0]) / len(states)
        )

    return judged(params, pooled, source, target)


def judged(params: Tree, pooled: Any, source: np.ndarray, target: np.ndarray | None) -> np.ndarray:
    """Logits of one text, or of two: of what is `pooled` of the states of each and of their ends."""
    logits = []
    for b in range(len(source)):
        texts = [ids[b] for ids in (source, target) if ids is not None]
        vectors = [pooled(*read(params["reader"], row)) for row in texts]
        features = vectors[0] if target is None else compared(*vectors)
        logits.append(verdict(params["verdict"], features))
    return np.array(logits)


def read(reader: Tree, row: np.ndarray) -> tuple[list[Vector], Vector]:
    """The states [forward ; backward] of the real words of a row, and the last state of each
    direction side by side.
    """
    words = [reader["embed"]["embedding"][word] for word in row[row != 0]]
    if "forward" not in reader["lstm"]:  # one direction
        states, (_, end) = passed(reader["lstm"], words)
        return states, end
    states, ends = both_ways(reader["lstm"], words)
    return states, np.concatenate([h for _, h in ends])


def bilstm_tagger(params: Tree, settings: dict[str, Any], tokens: np.ndarray) -> np.ndarray:
    """Numbers of every token: a layer of W x + b over the states of n layers."""
    result = np.zeros((*tokens.shape, len(params["out"]["bias"])))
    for row, numbers in zip(tokens, result, strict=True):
        states, _ = read(params["reader"], row)
        for above in range(settings.get("layers", 1) - 1):
            states, _ = both_ways(params[f"above_{above}"], states)
        for place, state in enumerate(states):
            numbers[place] = affine(params["out"], state)
    return result


def compared(p: Vector, h: Vector) -> Vector:
    """[p ; h ; |p - h| ; p * h]."""
    return np.concatenate([p, h, np.abs(p - h), p * h])


def verdict(params: Tree, features: Vector) -> Vector:
    """W_2 relu(W_1 x + b_1) + b_2."""
    return affine(params["last"], np.maximum(affine(params["first"], features), 0.0))
