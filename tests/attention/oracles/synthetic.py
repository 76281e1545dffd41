"""References of the mechanisms whose weights compare no query with the key they belong to."""

from typing import Any

import numpy as np

from tests.attention.oracles.rows import Array, Config, Result, affine, weights_of


def synthesizer(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """Column j of relu(x W_1 + b_1) W_2 + b_2, of R_i, or of u_i V^T, by positions."""
    heads, keys = config["heads"], source.shape[1]
    first = keys - query.shape[1]
    width = params["out"]["kernel"].shape[0] // heads

    def score(b: int, h: int, i: int, before: np.ndarray) -> np.ndarray:
        result = np.zeros(keys)
        for j in range(keys):
            if config.get("form") != "random":
                layer = params["w_hidden"]
                a = layer["kernel"].shape[1] // heads
                hidden = np.maximum(affine(layer, query[b, i])[h * a : (h + 1) * a], 0)
                result[j] = hidden @ params["columns"][h, :, j] + params["column_bias"][h, j]
            elif config.get("rank"):
                result[j] = params["of_queries"][h, first + i] @ params["of_keys"][h, j]
            else:
                result[j] = params["scores"][h, first + i, j]
        return result

    weights = weights_of(params, config, heads, score, query, mask)
    values = affine(params["w_value"], source)
    joined = np.zeros((*query.shape[:2], heads * width))
    for b, h, i in np.ndindex(weights.shape[:3]):
        own = slice(h * width, (h + 1) * width)
        joined[b, i, own] = weights[b, h, i] @ values[b, :, own]
    return affine(params["out"], joined), weights


def linformer(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """softmax(Q (E K)^T / sqrt(D)) (F V) over the real tokens; the map is softmax(...) F."""
    heads = config["heads"]
    width = params["out"]["kernel"].shape[0] // heads
    q, k, v = (
        affine(params[f"w_{name}"], x)
        for name, x in (("query", query), ("key", source), ("value", source))
    )
    along = params["along_keys"], params.get("along_values", params["along_keys"])
    weights = np.zeros((len(query), heads, query.shape[1], source.shape[1]))
    joined = np.zeros(q.shape)
    for b, h in np.ndindex(len(query), heads):
        own, real = slice(h * width, (h + 1) * width), np.flatnonzero(mask[b].any(axis=0))
        e, f = (one[h if config.get("share") == "none" else 0][:, real] for one in along)
        keys, values = e @ k[b, real, own], f @ v[b, real, own]
        for i in range(query.shape[1]):
            scores = np.exp(keys @ q[b, i, own] / np.sqrt(width))
            p = scores / scores.sum()
            joined[b, i, own] = p @ values
            weights[b, h, i, real] = p @ f
    return affine(params["out"], joined), weights
