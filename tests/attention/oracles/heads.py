"""References of the mechanisms whose heads weigh all keys: several heads, one over the source as it is,
latent attention, hops, and those whose weights compare no query with the key they belong to.
"""

import functools
from typing import Any

import numpy as np

from tests.attention.oracles.rows import Array, Look, Result, Scores, part
from tests.attention.score_oracles import SCORES
from tests.layers.oracles import affine, norm_of, sigmoid


def multihead(look: Look) -> Result:
    """Head h: align(score(q_h, k_g) + bias) v_g, g = h // (H / K); the heads side by side times
    W_o.
    """
    weights = look.weights(look.heads, heads_scores(look))
    return look.layer("out", heads_values(look, weights)), weights


def talking_heads(look: Look) -> Result:
    """Scores of head l: sum_h P_hl e_h; after the softmax, weights of head m: sum_l Q_lm a_l."""
    scores, heads = heads_scores(look), range(look.heads)

    def mixed(b: int, m: int, i: int, before: Array) -> Array:
        return sum(look.params["mix_scores"][h, m] * scores(b, h, i, before) for h in heads)  # type: ignore[return-value]

    weights = look.weights(look.heads, mixed)
    talked = np.einsum("bhik,hm->bmik", weights, look.params["mix_weights"])
    return look.layer("out", heads_values(look, talked)), talked


def gated(look: Look) -> Result:
    """The heads side by side, times sigmoid(x W_g) of every channel or every head, times W_o."""
    weights = look.weights(look.heads, heads_scores(look))
    gates = sigmoid(look.layer("w_gate", look.query))
    if look.config.get("gate") == "head":
        gates = np.repeat(gates, len(look.params["out"]["kernel"]) // look.heads, axis=-1)
    return look.layer("out", heads_values(look, weights) * gates), weights


def differential(look: Look) -> Result:
    """Pairs of neighbouring heads: A_2h - lam A_2h+1 over values twice as wide; (1 - lam0) RMSNorm
    of each; times W_o.
    """
    pairs, start, params = look.heads // 2, look.config.get("start", 0.2), look.params
    single_maps = look.weights(look.heads, heads_scores(look))
    lam = np.exp(params["a1"] @ params["b1"]) - np.exp(params["a2"] @ params["b2"]) + start
    weights = single_maps[:, 0::2] - lam * single_maps[:, 1::2]
    values = look.layer("w_value", look.source)
    wide = values.shape[-1] // pairs
    joined = np.zeros((*look.query.shape[:2], values.shape[-1]))
    for b, h, i in np.ndindex(weights.shape[:3]):
        mine = slice(h * wide, (h + 1) * wide)
        result = weights[b, h, i] @ values[b, :, mine]
        normed = result / np.sqrt((result**2).mean() + 1e-5)
        joined[b, i, mine] = (1 - start) * normed * params["gain"]
    return look.layer("out", joined), weights


def heads_scores(look: Look) -> Scores:
    """(b, h, i, weights [i,Tk] of the rows before) to score(q_h, k_g) + position bias [Tk], g = h //
    (H / K).
    """
    own, (score, fields) = look.params.get("score", {}), part(look.config, "score", "scaled_dot")
    fit, heads, group = SCORES[score], look.heads, look.group
    q = projected(look.params["w_query"], look.query, heads)
    k = projected(look.params["w_key"], look.source, heads)
    width = q.shape[-1] // heads
    place = look.place(width)

    def of_row(b: int, h: int, i: int, before: Array) -> Array:
        asked, at = q[b, i, h * width : (h + 1) * width], look.first + i
        keys = k[b, :, h // group * width : (h // group + 1) * width]
        x = place.query(h, fit.query(own, fields, asked), at)
        scores = np.zeros(len(keys))
        for j, key in enumerate(keys):
            y = place.key(h, fit.key(own, fields, key), j)
            scores[j] = fit.pair(own, fields, x, y, j, *fit.past(own, fields, keys, before, j))
            scores[j] += place.bias(h, asked, key, at, j)
        return place.rows(h, asked, scores, look.mask[b, i])

    return of_row


def heads_values(look: Look, weights: Array) -> Array:
    """The weighted sums of all heads side by side, [B,Tq,H*D]."""
    group, v = look.group, projected(look.params["w_value"], look.source, look.heads)
    width = v.shape[-1] * group // look.heads
    place = look.place(width)
    joined = np.zeros((weights.shape[0], weights.shape[2], look.heads * width))
    for b, h, i, j in np.ndindex(weights.shape):
        value = v[b, j, h // group * width : (h // group + 1) * width]
        value = value + place.value(h, look.first + i, j)
        joined[b, i, h * width : (h + 1) * width] += weights[b, h, i, j] * value
    return joined


def projected(params: Any, x: Array, heads: int) -> Array:
    """x W + b; or the vectors of all heads side by side, each the mean over r of a_r[h] b_r, where the
    parameters are those of factors.
    """
    if "of_heads" not in params:
        return affine(params, x)
    rank = params["of_heads"]["kernel"].shape[1] // heads
    a, b = (np.split(affine(params[one], x), rank, axis=-1) for one in ("of_heads", "of_widths"))
    return np.concatenate(
        [sum(a[r][..., [h]] * b[r] for r in range(rank)) / rank for h in range(heads)], axis=-1
    )


def forgetting(look: Look) -> Result:
    """e_ij + log of the product of f over the tokens behind j, up to i; those behind i divide."""
    scores, f = heads_scores(look), sigmoid(look.layer("w_forget", look.source))
    f = np.where(look.mask.any(axis=1)[..., None], f, 1.0)

    def decayed(b: int, h: int, i: int, before: Array) -> Array:
        result, at = scores(b, h, i, before), look.first + i
        for j in range(len(result)):
            behind, ahead = f[b, j + 1 : at + 1, h], f[b, at + 1 : j + 1, h]
            result[j] += np.log(behind).sum() - np.log(ahead).sum()
        return result

    weights = look.weights(look.heads, decayed)
    return look.layer("out", heads_values(look, weights)), weights


def single(look: Look) -> Result:
    """e_ij = score(q_i, s_j); c_i = sum_j a_ij s_j."""
    weights = look.weights(
        1, lambda b, h, i, before: look.scored(look.query[b, i], look.source[b], before)
    )
    return np.einsum("bhqk,bkd->bqd", weights, look.source), weights


def key_value(look: Look, parts: int = 2) -> Result:
    """Halves (k, v): e_ij = score(k_i, k_j), r_i = sum_j a_ij v_j, y_i = tanh(r_i W_r + v_i W_x);
    zeros where nothing is seen.
    """
    keys, values, *_ = np.split(look.source, parts, axis=-1)
    asked, *_, own = np.split(look.query, parts, axis=-1)
    weights = look.weights(1, lambda b, h, i, before: look.scored(asked[b, i], keys[b], before))
    r = np.einsum("bhqk,bkd->bqd", weights, values)
    of_found, of_own = (look.params[name]["kernel"] for name in ("of_found", "of_own"))
    context = np.tanh(r @ of_found + own @ of_own)
    return context * look.mask.any(axis=-1, keepdims=True), weights


def key_value_predict(look: Look) -> Result:
    """Thirds (k, v, p): as `key_value`, but y_i = tanh(r_i W_r + p_i W_x)."""
    return key_value(look, 3)


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
