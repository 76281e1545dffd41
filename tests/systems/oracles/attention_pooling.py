"""Attention pooling, by its paper's attention over words."""

from typing import Any

import numpy as np

from tests.systems.oracles.bilstm_pooling import judged
from tests.systems.oracles.parts import Tree, Vector, additive


def attention_pooling(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target: np.ndarray | None = None
) -> np.ndarray:
    """Yang et al. 2016, equations 5-7, with b = u W_q: e_j = v . tanh(h_j W + b), the weighted mean
    of the states.
    """

    def pooled(states: list[Vector], ends: Vector) -> Vector:
        if not states:
            return np.zeros_like(ends)
        return additive(params["attention"], params["query"], states)

    return judged(params, pooled, source, target)
