"""References of latent attention and of hops."""

import functools

import numpy as np

from tests.attention.oracles.rows import Array, Look, Result
from tests.layers.oracles import norm_of


def latent(look: Look) -> Result:
    """Direct form: k_h = [c U_h ; turn(s W_kr)], v_h = c V_h, q_h = [content ; turn(rotary)], scale
    1 / sqrt(D + R).
    """
    params, rotary = look.params, look.config.get("rotary", 0)
    turn = look.place(max(rotary, 1), {})
    rms = functools.partial(norm_of, "rms_norm", epsilon=1e-6)
    c = rms(params["norm_latent"], look.layer("w_latent", look.source))
    x = look.query
    if look.config.get("query_latent"):
        x = rms(params["norm_query"], look.layer("w_query_latent", x))
    batch, queries, keys = look.mask.shape
    size = params["up_key"].shape[2]
    q = look.layer("w_query", x).reshape(batch, queries, look.heads, size + rotary)

    def scores(b: int, h: int, i: int, before: Array) -> Array:
        result = np.zeros(keys)
        for j in range(keys):
            result[j] = q[b, i, h, :size] @ (c[b, j] @ params["up_key"][:, h])
            if rotary:
                turned = turn.key(0, look.source[b, j] @ params["w_turned"]["kernel"], j)
                result[j] += turn.query(h, q[b, i, h, size:], look.first + i) @ turned
        return result / np.sqrt(size + rotary)

    weights = look.weights(look.heads, scores)
    joined = np.zeros((batch, queries, look.heads, size))
    for b, h, i in np.ndindex(weights.shape[:3]):
        joined[b, i, h] = weights[b, h, i] @ (c[b] @ params["up_value"][:, h])
    return look.layer("out", joined.reshape(batch, queries, -1)), weights


def hops(look: Look) -> Result:
    """A = softmax over j of W_2 tanh(W_1 s_j); the r sums side by side times W_o, the same for
    every query but for its mask.
    """
    scores = np.tanh(look.layer("w_hidden", look.source)) @ look.params["w_hops"]["kernel"]
    weights = look.weights(look.config["hops"], lambda b, r, i, before: scores[b, :, r])
    joined = np.einsum("brik,bkd->bird", weights, look.source)
    return look.layer("out", joined.reshape(*look.query.shape[:2], -1)), weights
