"""Attention pooling, by its paper's attention over words."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.systems.oracles.bilstm_pooling import compared, read, verdict
from tests.systems.oracles.parts import Tree, additive


def attention_pooling(
    params: Tree, settings: dict[str, Any], source: np.ndarray, target: np.ndarray | None = None
) -> np.ndarray:
    """Yang et al. 2016, equations 5-7, with b = u W_q: e_j = v . tanh(h_j W + b), the weighted mean
    of the states.
    """
    logits = []
    for b in range(len(source)):
        vectors = []
        for ids in (one for one in (source, target) if one is not None):
            states, ends = read(params["reader"], ids[b])
            vectors.append(
                additive(params["attention"], params["query"], states)
                if states
                else np.zeros_like(ends)
            )
        logits.append(
            verdict(params["verdict"], vectors[0] if target is None else compared(*vectors))
        )
    return np.array(logits)
