"""The reference of linear attention, with every weight written out, and of its feature maps, one
vector at a time.
"""

from typing import Any

import numpy as np

from tests.attention.oracles.rows import Look, Result, part
from tests.layers.oracles import softmax


def feature(name: str, fields: dict[str, Any], params: Any, x: np.ndarray, h: int, p: int) -> Any:
    """phi(x) of a vector [D] of head h at position p."""
    if name == "identity":
        return x
    if name == "elu":
        return np.array([1 + a if a > 0 else np.exp(a) for a in x])
    if name == "relu":
        return np.maximum(x, 0)
    if name == "softmax":
        return softmax(x)
    if name == "hedgehog":
        z = x @ params["kernel"][h] + params["bias"][h, 0]
        return np.concatenate([softmax(z), softmax(-z)])
    if name == "squared":
        return np.outer(x, x).ravel()
    if name == "taylor":
        y = x / len(x) ** 0.25
        return np.concatenate([[1.0], y, np.outer(y, y).ravel() / np.sqrt(2)])
    if name == "dpfp":
        r, n = np.maximum(np.concatenate([x, -x]), 0), 2 * len(x)
        back = range(1, fields.get("neighbours", 1) + 1)
        return np.array([r[a] * r[(a - m) % n] for m in back for a in range(n)])
    assert name == "cosine"
    angle = np.pi * p / (2 * fields.get("length", 1024))
    return np.concatenate([np.maximum(x, 0) * np.cos(angle), np.maximum(x, 0) * np.sin(angle)])


def linear(look: Look) -> Result:
    """A_ij = phi(q_i) . phi(k_j), over its sum in a row or not; then the heads, normed or not."""
    params, config, heads = look.params, look.config, look.config.get("heads", 4)
    name, fields = part(config, "features", "elu")
    q, k, v = (x.reshape(*x.shape[:2], heads, -1) for x in look.projected())
    batch, queries, keys = look.mask.shape
    weights, context = np.zeros((batch, heads, queries, keys)), np.zeros(q.shape)
    for b, h, i in np.ndindex(batch, heads, queries):
        mine = params.get("query_features"), q[b, i, h], h, look.first + i
        of_query = feature(name, fields, *mine)
        for j in np.flatnonzero(look.mask[b, i]):
            of_key = feature(name, fields, params.get("key_features"), k[b, j, h], h, j)
            weights[b, h, i, j] = of_query @ of_key
        if config.get("normalise", "sum") == "sum" and weights[b, h, i].any():
            weights[b, h, i] /= weights[b, h, i].sum()
        result = weights[b, h, i] @ v[b, :, h]
        if config.get("normalise") == "norm":
            result = result / np.sqrt((result**2).mean() + 1e-6) * params["norm"]["scale"]
        context[b, i, h] = result
    return look.layer("out", context.reshape(batch, queries, -1)), weights
