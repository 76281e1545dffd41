"""Float64 NumPy references of the mechanisms, written from the papers' formulas with plain loops.
One per mechanism, by registered name.

Each takes the mechanism's parameters, its configuration, query [B,Tq,dq], source [B,Tk,ds], a
boolean mask [B,Tq,Tk] (True may be seen) and, for position schemes that ask, whether no query sees
a later key; it returns (context [B,Tq,d], weights [B,H,Tq,Tk]). Scores, alignments and position
schemes have references of their own (`score_oracles.py`, `alignment_oracles.py`,
`position_oracles.py`), which these put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.attention.alignment_oracles import ALIGNMENTS
from tests.attention.position_oracles import POSITIONS
from tests.attention.score_oracles import SCORES

Result = tuple[np.ndarray, np.ndarray]
Oracle = Callable[..., Result]


def part(config: Mapping[str, Any], field: str, default: str) -> tuple[str, dict[str, Any]]:
    """The name and the fields of a part of a configuration."""
    node = config.get(field, default)
    node = {"name": node} if isinstance(node, str) else dict(node)
    return node.pop("name"), node


def single(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """e_ij = score(q_i, s_j); c_i = sum_j a_ij s_j."""
    score, fields = part(config, "score", "additive")
    align, how = part(config, "alignment", "softmax")
    batch, queries, keys = mask.shape
    context, weights = (
        np.zeros((batch, queries, source.shape[-1])),
        np.zeros((batch, 1, queries, keys)),
    )
    for b in range(batch):
        for i in range(queries):
            scores = np.array(
                [
                    SCORES[score](params.get("score", {}), fields, query[b, i], source[b, j], j)
                    for j in range(keys)
                ]
            )
            row = (scores, mask[b, i], query[b, i], keys - queries + i)
            weights[b, 0, i] = ALIGNMENTS[align](
                params.get("alignment", {}),
                how,
                *row,
                before=weights[b, 0, :i],
                length=real(mask[b]),
            )
            context[b, i] = sum(weights[b, 0, i, j] * source[b, j] for j in range(keys))
    return context, weights


def multihead(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """Head h: align(score(q_h, k_g) + bias) v_g, g = h // (H / K); the heads side by side times
    W_o.
    """
    weights = heads_weights(
        params, config, heads_scores(params, config, query, source, causal), query, mask
    )
    joined = heads_values(params, config, source, weights)
    return _affine(params["out"], joined), weights


def talking_heads(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """Scores of head l: sum_h P_hl e_h; after the softmax, weights of head m: sum_l Q_lm a_l."""
    scores = heads_scores(params, config, query, source, causal)
    heads = range(config["heads"])
    mixed = np.stack(
        [sum(params["mix_scores"][h, m] * scores[:, h] for h in heads) for m in heads], axis=1
    )
    weights = heads_weights(params, config, mixed, query, mask)
    talked = np.stack(
        [sum(params["mix_weights"][h, m] * weights[:, h] for h in heads) for m in heads], axis=1
    )
    return _affine(params["out"], heads_values(params, config, source, talked)), talked


def gated(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """The heads side by side, times sigmoid(x W_g) of every channel or every head, times W_o."""
    weights = heads_weights(
        params, config, heads_scores(params, config, query, source, causal), query, mask
    )
    gates = 1 / (1 + np.exp(-_affine(params["w_gate"], query)))
    if config.get("gate") == "head":
        size = len(params["out"]["kernel"]) // config["heads"]
        gates = np.repeat(gates, size, axis=-1)
    return _affine(params["out"], heads_values(params, config, source, weights) * gates), weights


def differential(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """Pairs of neighbouring heads: A_2h - lam A_2h+1 over values twice as wide; (1 - lam0) RMSNorm
    of each; times W_o.
    """
    pairs, start = config["heads"] // 2, config.get("start", 0.2)
    single_maps = heads_weights(
        params, config, heads_scores(params, config, query, source, causal), query, mask
    )
    lam = np.exp(params["a1"] @ params["b1"]) - np.exp(params["a2"] @ params["b2"]) + start
    weights = np.stack(
        [single_maps[:, 2 * h] - lam * single_maps[:, 2 * h + 1] for h in range(pairs)], axis=1
    )
    values = _affine(params["w_value"], source)
    wide = values.shape[-1] // pairs
    joined = np.zeros((*query.shape[:2], values.shape[-1]))
    for b, h, i in np.ndindex(weights.shape[:3]):
        mine = slice(h * wide, (h + 1) * wide)
        found = weights[b, h, i] @ values[b, :, mine]
        joined[b, i, mine] = (
            (1 - start) * found / np.sqrt((found**2).mean() + 1e-5) * params["gain"]
        )
    return _affine(params["out"], joined), weights


def latent(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """Direct form: k_h = [c U_h ; turn(s W_kr)], v_h = c V_h, q_h = [content ; turn(rotary)], scale
    1 / sqrt(D + R).
    """
    heads, rotary = config["heads"], config.get("rotary", 0)
    scheme, turns = part(config, "positions", "none")
    turn = POSITIONS[scheme]({}, turns, heads, max(rotary, 1))
    align, how = part(config, "alignment", "softmax")
    c = _rms(_affine(params["w_latent"], source), params["norm_latent"]["scale"])
    x = (
        _rms(_affine(params["w_query_latent"], query), params["norm_query"]["scale"])
        if config.get("query_latent")
        else query
    )
    batch, queries, keys = mask.shape
    size = params["up_key"].shape[2]
    q = _affine(params["w_query"], x).reshape(batch, queries, heads, size + rotary)
    weights, joined = (
        np.zeros((batch, heads, queries, keys)),
        np.zeros((batch, queries, heads * size)),
    )
    for b, h, i in np.ndindex(batch, heads, queries):
        at = keys - queries + i
        scores = np.zeros(keys)
        for j in range(keys):
            scores[j] = q[b, i, h, :size] @ (c[b, j] @ params["up_key"][:, h])
            if rotary:
                turned = turn.key(0, source[b, j] @ params["w_turned"]["kernel"], j)
                scores[j] += turn.query(h, q[b, i, h, size:], at) @ turned
        row = (scores / np.sqrt(size + rotary), mask[b, i], query[b, i], at)
        place = {"head": h, "before": weights[b, h, :i], "length": real(mask[b])}
        weights[b, h, i] = ALIGNMENTS[align](params.get("alignment", {}), how, *row, **place)
        joined[b, i, h * size : (h + 1) * size] = weights[b, h, i] @ (
            c[b] @ params["up_value"][:, h]
        )
    return _affine(params["out"], joined), weights


def hops(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """A = softmax over j of W_2 tanh(W_1 s_j); the r sums side by side times W_o, the same for
    every query but for its mask.
    """
    align, how = part(config, "alignment", "softmax")
    scores = np.tanh(_affine(params["w_hidden"], source)) @ params["w_hops"]["kernel"]
    batch, queries, keys = mask.shape
    weights = np.zeros((batch, config["hops"], queries, keys))
    for b, r, i in np.ndindex(weights.shape[:3]):
        row = (scores[b, :, r], mask[b, i], query[b, i], keys - queries + i)
        place = {"head": r, "before": weights[b, r, :i], "length": real(mask[b])}
        weights[b, r, i] = ALIGNMENTS[align](params.get("alignment", {}), how, *row, **place)
    joined = np.stack(
        [
            [
                np.concatenate([weights[b, r, i] @ source[b] for r in range(config["hops"])])
                for i in range(queries)
            ]
            for b in range(batch)
        ]
    )
    return _affine(params["out"], joined), weights


def key_value(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """Halves (k, v): e_ij = score(k_i, k_j), r_i = sum_j a_ij v_j, y_i = tanh(r_i W_r + v_i W_x);
    zeros where nothing is seen.
    """
    return _in_parts(params, config, query, source, mask, 2)


def key_value_predict(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """Thirds (k, v, p): as `key_value`, but y_i = tanh(r_i W_r + p_i W_x)."""
    return _in_parts(params, config, query, source, mask, 3)


def _in_parts(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    parts: int,
) -> Result:
    score, fields = part(config, "score", "additive")
    align, how = part(config, "alignment", "softmax")
    batch, queries, keys = mask.shape
    asked, kept = query.shape[-1] // parts, source.shape[-1] // parts
    context, weights = (
        np.zeros((batch, queries, params["of_own"]["kernel"].shape[1])),
        np.zeros((batch, 1, queries, keys)),
    )
    for b, i in np.ndindex(batch, queries):
        k_i, own = query[b, i, :asked], query[b, i, -asked:]
        scores = np.array(
            [
                SCORES[score](params.get("score", {}), fields, k_i, source[b, j, :kept], j)
                for j in range(keys)
            ]
        )
        weights[b, 0, i] = ALIGNMENTS[align](
            params.get("alignment", {}), how, scores, mask[b, i], query[b, i], keys - queries + i
        )
        r = sum(weights[b, 0, i, j] * source[b, j, kept : 2 * kept] for j in range(keys))
        if mask[b, i].any():
            context[b, i] = np.tanh(
                r @ params["of_found"]["kernel"] + own @ params["of_own"]["kernel"]
            )
    return context, weights


def multi_step(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    mask: np.ndarray,
    causal: bool = False,
) -> Result:
    """q_0 = x W_q, q_{n+1} = q_n + context(q_n), `steps` times; the sum of the contexts, and the
    maps of all steps as heads.
    """
    name, fields = part(config, "looks", "multihead")
    query = _affine(params["w_query"], query)
    total, maps = np.zeros(query.shape), []
    for _ in range(config["steps"]):
        context, weights = ORACLES[name](
            params["looks"], fields, query + total, source, mask, causal
        )
        total = total + context
        maps.append(weights)
    return total, np.concatenate(maps, axis=1)


def heads_scores(
    params: Any, config: dict[str, Any], query: np.ndarray, source: np.ndarray, causal: bool
) -> np.ndarray:
    """[B,H,Tq,Tk]: score(q_h, k_g) + position bias, g = h // (H / K)."""
    heads = config["heads"]
    score, fields = part(config, "score", "scaled_dot")
    scheme, turns = part(config, "positions", "none")
    fit = SCORES[score]
    q, k = _affine(params["w_query"], query), _affine(params["w_key"], source)
    width = q.shape[-1] // heads
    group = heads // (config.get("key_heads") or heads)
    place = POSITIONS[scheme](params.get("positions", {}), turns, heads, width, causal)
    scores = np.zeros((query.shape[0], heads, query.shape[1], source.shape[1]))
    for b, h, i, j in np.ndindex(scores.shape):
        mine, shared = (
            slice(h * width, (h + 1) * width),
            slice(h // group * width, (h // group + 1) * width),
        )
        at = source.shape[1] - query.shape[1] + i
        x = place.query(h, fit.query(params.get("score", {}), fields, q[b, i, mine]), at)
        y = place.key(h, fit.key(params.get("score", {}), fields, k[b, j, shared]), j)
        bias = place.bias(h, q[b, i, mine], k[b, j, shared], at, j)
        scores[b, h, i, j] = fit.pair(params.get("score", {}), fields, x, y, j) + bias
    return scores


def heads_weights(
    params: Any, config: dict[str, Any], scores: np.ndarray, query: np.ndarray, mask: np.ndarray
) -> np.ndarray:
    """[B,H,Tq,Tk]: each row aligned on its own."""
    align, how = part(config, "alignment", "softmax")
    weights = np.zeros(scores.shape)
    for b, h, i in np.ndindex(scores.shape[:3]):
        at = scores.shape[3] - scores.shape[2] + i
        row, place = (
            (scores[b, h, i], mask[b, i], query[b, i], at),
            {
                "head": h,
                "before": weights[b, h, :i],
                "length": real(mask[b]),
            },
        )
        weights[b, h, i] = ALIGNMENTS[align](params.get("alignment", {}), how, *row, **place)
    return weights


def heads_values(
    params: Any, config: dict[str, Any], source: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The weighted sums of all heads side by side, [B,Tq,H*D]."""
    heads = config["heads"]
    scheme, turns = part(config, "positions", "none")
    v = _affine(params["w_value"], source)
    group = heads // (config.get("key_heads") or heads)
    width = v.shape[-1] * group // heads
    place = POSITIONS[scheme](params.get("positions", {}), turns, heads, width)
    joined = np.zeros((weights.shape[0], weights.shape[2], heads * width))
    for b, h, i, j in np.ndindex(weights.shape):
        value = v[b, j, h // group * width : (h // group + 1) * width] + place.value(
            h, weights.shape[3] - weights.shape[2] + i, j
        )
        joined[b, i, h * width : (h + 1) * width] += weights[b, h, i, j] * value
    return joined


def real(mask: np.ndarray) -> int:
    """How many keys of a row [Tq,Tk] are real: those that some query may see."""
    return int(mask.any(axis=0).sum())


def _rms(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * scale


def _affine(params: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    return x @ params["kernel"] + params.get("bias", 0.0)


ORACLES: dict[str, Oracle] = {
    "single": single,
    "multihead": multihead,
    "talking_heads": talking_heads,
    "differential": differential,
    "gated": gated,
    "latent": latent,
    "hops": hops,
    "key_value": key_value,
    "key_value_predict": key_value_predict,
    "multi_step": multi_step,
}
