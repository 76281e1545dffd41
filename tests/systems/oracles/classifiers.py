"""Recurrent classifiers of texts, of pairs and of tokens, one text at a time."""

from typing import Any

import numpy as np

from tests.systems.oracles import parts
from tests.systems.oracles.parts import Settings, Tree, Vector, affine, of_each_row, of_each_token


def _read(reader: Tree, text: Vector) -> tuple[list[Vector], Vector]:
    """The states [forward ; backward] of the words, and the last state of each direction side by
    side.
    """
    words = parts.embeddings(reader["embed"], text)
    if "forward" not in reader["lstm"]:  # one direction
        states, (_, end) = parts.passed(reader["lstm"], words)
        return states, end
    states, ends = parts.both_ways(reader["lstm"], words)
    return states, np.concatenate([h for _, h in ends])


def _judged(params: Tree, pooled: Any, texts: tuple[Vector, ...]) -> Vector:
    """Logits of a text, or of two from [p ; h ; |p - h| ; p * h], each `pooled` from its states and
    their ends.
    """
    p, *second = (pooled(*_read(params["reader"], text)) for text in texts)
    for h in second:
        p = np.concatenate([p, h, np.abs(p - h), p * h])
    return _verdict(params["verdict"], p)


def _verdict(params: Tree, features: Vector) -> Vector:
    """W_2 relu(W_1 x + b_1) + b_2."""
    return affine(params["last"], np.maximum(affine(params["first"], features), 0.0))


@of_each_row
def bilstm_pooling(params: Tree, settings: Settings, *texts: Vector) -> Vector:
    """Conneau et al. 2017: mean, maximum or end of the states."""
    pooling = settings.get("pooling", "mean")

    def pooled(states: list[Vector], ends: Vector) -> Vector:
        if pooling == "last":
            return ends
        if not states:
            return np.zeros_like(ends)
        return np.max(states, axis=0) if pooling == "max" else np.mean(states, axis=0)

    return _judged(params, pooled, texts)


@of_each_row
def attention_pooling(params: Tree, settings: Settings, *texts: Vector) -> Vector:
    """Yang et al. 2016, equations 5-7, with b = u W_q: e_j = v . tanh(h_j W + b), the weighted mean
    of the states.
    """

    def pooled(states: list[Vector], ends: Vector) -> Vector:
        if not states:
            return np.zeros_like(ends)
        return parts.additive(params["attention"], params["query"], states)

    return _judged(params, pooled, texts)


@of_each_row
def self_attentive(params: Tree, settings: Settings, *texts: Vector) -> Vector:
    """Lin et al. 2017, equations 5-8; of two texts every row of both matrices by its own weights,
    and their product.
    """
    matrices = [_matrix(params, text)[1] for text in texts]
    rows = matrices[0]
    if len(matrices) == 2:
        gates = (params["gate_source"]["kernel"], params["gate_target"]["kernel"])
        rows = [
            (p @ gates[0][i]) * (h @ gates[1][i])
            for i, (p, h) in enumerate(zip(*matrices, strict=True))
        ]
    return _verdict(params["verdict"], np.concatenate(rows))


@of_each_row
def penalties(params: Tree, settings: Settings, text: Vector) -> float:
    """|| A A^T - I ||_F^2 of a text."""
    weights = _matrix(params, text)[0]
    return sum(
        (float(one @ other) - (i == j)) ** 2
        for i, one in enumerate(weights)
        for j, other in enumerate(weights)
    )


def _matrix(params: Tree, text: Vector) -> tuple[list[Vector], list[Vector]]:
    """A and M of a text, row by row; of none, no weights and zeros."""
    states, ends = _read(params["reader"], text)
    hops = params["attention"]["w_hops"]["kernel"]
    if not states:
        return [np.zeros(0)] * hops.shape[1], [np.zeros_like(ends)] * hops.shape[1]
    inner = [np.tanh(state @ params["attention"]["w_hidden"]["kernel"]) for state in states]
    weights = [parts.softmax(scores) for scores in (inner @ hops).T]
    return weights, [parts.mean_of(weight, states) for weight in weights]


@of_each_token
def bilstm_tagger(params: Tree, settings: Settings, text: Vector) -> np.ndarray:
    """Numbers of every token: a layer of W x + b over the states of n layers."""
    states, _ = _read(params["reader"], text)
    for above in range(settings.get("layers", 1) - 1):
        states, _ = parts.both_ways(params[f"above_{above}"], states)
    return affine(params["out"], np.array(states))
