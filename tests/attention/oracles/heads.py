"""References of the mechanisms with several heads."""

from typing import Any

import numpy as np

from tests.attention.oracles.rows import Array, Look, Result, Scores, part
from tests.attention.score_oracles import SCORES
from tests.layers.oracles import affine, sigmoid


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
