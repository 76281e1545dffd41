"""References of the mechanisms whose weights compare no query with the key they belong to."""

import numpy as np

from tests.attention.oracles.heads import heads_values
from tests.attention.oracles.rows import Array, Look, Result


def synthesizer(look: Look) -> Result:
    """Column j of relu(x W_1 + b_1) W_2 + b_2, of R_i, or of u_i V^T, by positions."""
    params, heads, keys = look.params, look.heads, look.source.shape[1]

    def score(b: int, h: int, i: int, before: Array) -> Array:
        at = look.first + i
        if look.config.get("form") != "random":
            hidden = np.split(np.maximum(look.layer("w_hidden", look.query[b, i]), 0), heads)[h]
            return (hidden @ params["columns"][h] + params["column_bias"][h])[:keys]
        if look.config.get("rank"):
            return params["of_keys"][h, :keys] @ params["of_queries"][h, at]
        return params["scores"][h, at, :keys]

    weights = look.weights(heads, score)
    return look.layer("out", heads_values(look, weights)), weights


def linformer(look: Look) -> Result:
    """softmax(Q (E K)^T / sqrt(D)) (F V) over the real tokens; the map is softmax(...) F."""
    heads, query, source = look.heads, look.query, look.source
    width = look.params["out"]["kernel"].shape[0] // heads
    q, k, v = look.projected()
    keys_along = look.params["along_keys"]
    along = keys_along, look.params.get("along_values", keys_along)
    weights = np.zeros((len(query), heads, query.shape[1], source.shape[1]))
    joined = np.zeros(q.shape)
    for b, h in np.ndindex(len(query), heads):
        own, real = slice(h * width, (h + 1) * width), np.flatnonzero(look.mask[b].any(axis=0))
        e, f = (one[h if look.config.get("share") == "none" else 0][:, real] for one in along)
        keys, values = e @ k[b, real, own], f @ v[b, real, own]
        for i in range(query.shape[1]):
            scores = np.exp(keys @ q[b, i, own] / np.sqrt(width))
            p = scores / scores.sum()
            joined[b, i, own] = p @ values
            weights[b, h, i, real] = p @ f
    return look.layer("out", joined), weights
