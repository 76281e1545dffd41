"""Float64 NumPy references, written from the papers' formulas with plain loops. One per mechanism, by registered name.

Each takes the mechanism's parameters, its configuration, query [B,Tq,dq], source [B,Tk,ds] and a boolean mask [B,Tq,Tk] (True may be
seen), and returns (context [B,Tq,d], weights [B,H,Tq,Tk]).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Result = tuple[np.ndarray, np.ndarray]


def softmax_row(scores: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """exp(e_j) / sum exp over the allowed j of one row; zeros where nothing is allowed."""
    weights = np.zeros(len(scores))
    chosen = np.flatnonzero(allowed)
    if len(chosen):
        raised = np.exp(scores[chosen] - scores[chosen].max())
        weights[chosen] = raised / raised.sum()
    return weights


def additive(params: Any, config: dict[str, Any], query: np.ndarray, source: np.ndarray, mask: np.ndarray) -> Result:
    """e_ij = v . tanh(W_a q_i + U_a s_j); c_i = sum_j a_ij s_j."""
    w, u, v = params["of_query"]["kernel"], params["of_key"]["kernel"], params["v"]
    batch, queries, keys = mask.shape
    context, weights = np.zeros((batch, queries, source.shape[-1])), np.zeros((batch, 1, queries, keys))
    for b in range(batch):
        for i in range(queries):
            scores = np.array([v @ np.tanh(w.T @ query[b, i] + u.T @ source[b, j]) for j in range(keys)])
            weights[b, 0, i] = softmax_row(scores, mask[b, i])
            context[b, i] = sum(weights[b, 0, i, j] * source[b, j] for j in range(keys))
    return context, weights


def multihead(params: Any, config: dict[str, Any], query: np.ndarray, source: np.ndarray, mask: np.ndarray) -> Result:
    """Head h: softmax(q_h k_h / sqrt(D)) v_h; the heads side by side times W_o."""
    heads = config["heads"]
    project = {name: _affine(params[name]) for name in ("of_query", "of_key", "of_value", "out")}
    q, k, v = project["of_query"](query), project["of_key"](source), project["of_value"](source)
    batch, queries, keys = mask.shape
    width = q.shape[-1] // heads
    joined, weights = np.zeros(q.shape), np.zeros((batch, heads, queries, keys))
    for b in range(batch):
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            for i in range(queries):
                scores = np.array([q[b, i, part] @ k[b, j, part] / np.sqrt(width) for j in range(keys)])
                weights[b, h, i] = softmax_row(scores, mask[b, i])
                joined[b, i, part] = sum(weights[b, h, i, j] * v[b, j, part] for j in range(keys))
    return project["out"](joined), weights


def _affine(params: dict[str, np.ndarray]) -> Any:
    return lambda x: x @ params["kernel"] + params.get("bias", 0.0)


ORACLES = {"additive": additive, "multihead": multihead}
