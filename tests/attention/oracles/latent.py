"""References of latent attention and of hops."""

from typing import Any

import numpy as np

from tests.attention.oracles.rows import Array, Config, Result, affine, part, weights_of
from tests.attention.position_oracles import POSITIONS


def latent(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """Direct form: k_h = [c U_h ; turn(s W_kr)], v_h = c V_h, q_h = [content ; turn(rotary)], scale
    1 / sqrt(D + R).
    """
    heads, rotary = config["heads"], config.get("rotary", 0)
    scheme, turns = part(config, "positions", "none")
    turn = POSITIONS[scheme]({}, turns, heads, max(rotary, 1))
    c = _rms(affine(params["w_latent"], source), params["norm_latent"]["scale"])
    x = (
        _rms(affine(params["w_query_latent"], query), params["norm_query"]["scale"])
        if config.get("query_latent")
        else query
    )
    batch, queries, keys = mask.shape
    size = params["up_key"].shape[2]
    q = affine(params["w_query"], x).reshape(batch, queries, heads, size + rotary)
    first = keys - queries

    def scores(b: int, h: int, i: int, before: np.ndarray) -> np.ndarray:
        result = np.zeros(keys)
        for j in range(keys):
            result[j] = q[b, i, h, :size] @ (c[b, j] @ params["up_key"][:, h])
            if rotary:
                turned = turn.key(0, source[b, j] @ params["w_turned"]["kernel"], j)
                result[j] += turn.query(h, q[b, i, h, size:], first + i) @ turned
        return result / np.sqrt(size + rotary)

    weights = weights_of(params, config, heads, scores, query, mask)
    joined = np.zeros((batch, queries, heads * size))
    for b, h, i in np.ndindex(batch, heads, queries):
        joined[b, i, h * size : (h + 1) * size] = weights[b, h, i] @ (
            c[b] @ params["up_value"][:, h]
        )
    return affine(params["out"], joined), weights


def hops(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """A = softmax over j of W_2 tanh(W_1 s_j); the r sums side by side times W_o, the same for
    every query but for its mask.
    """
    scores = np.tanh(affine(params["w_hidden"], source)) @ params["w_hops"]["kernel"]
    batch, queries, _ = mask.shape
    weights = weights_of(
        params, config, config["hops"], lambda b, r, i, before: scores[b, :, r], query, mask
    )
    joined = np.stack(
        [
            [
                np.concatenate([weights[b, r, i] @ source[b] for r in range(config["hops"])])
                for i in range(queries)
            ]
            for b in range(batch)
        ]
    )
    return affine(params["out"], joined), weights


def _rms(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * scale
