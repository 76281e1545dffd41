"""The structured self-attentive sentence embedding, by its paper."""

from typing import Any

import numpy as np

from tests.systems.oracles.bilstm_pooling import read, verdict
from tests.systems.oracles.parts import Tree, Vector, mean_of, softmax


def self_attentive(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target: np.ndarray | None = None
) -> np.ndarray:
    """Lin et al. 2017, equations 5-8; of two texts every row of both matrices by its own weights,
    and their product.
    """
    logits = []
    for b in range(len(source)):
        matrices = [_matrix(params, ids[b])[1] for ids in (source, target) if ids is not None]
        rows = matrices[0]
        if target is not None:
            gates = (params["gate_source"]["kernel"], params["gate_target"]["kernel"])
            rows = [
                (p @ gates[0][i]) * (h @ gates[1][i])
                for i, (p, h) in enumerate(zip(*matrices, strict=True))
            ]
        logits.append(verdict(params["verdict"], np.concatenate(rows)))
    return np.array(logits)


def penalties(params: Tree, source: np.ndarray) -> np.ndarray:
    """|| A A^T - I ||_F^2 of every text, [B]."""
    result = []
    for row in source:
        weights = _matrix(params, row)[0]
        total = 0.0
        for i, one in enumerate(weights):
            for j, other in enumerate(weights):
                total += (float(one @ other) - (i == j)) ** 2
        result.append(total)
    return np.array(result)


def _matrix(params: Tree, row: np.ndarray) -> tuple[list[Vector], list[Vector]]:
    """A and M of a text, row by row; of none, no weights and zeros."""
    states, ends = read(params["reader"], row)
    hops = params["attention"]["w_hops"]["kernel"]
    if not states:
        return [np.zeros(0)] * hops.shape[1], [np.zeros_like(ends)] * hops.shape[1]
    scores = np.array(
        [np.tanh(state @ params["attention"]["w_hidden"]["kernel"]) @ hops for state in states]
    )  # [S,r]
    weights = [softmax(scores[:, hop]) for hop in range(hops.shape[1])]
    return weights, [mean_of(weight, states) for weight in weights]
