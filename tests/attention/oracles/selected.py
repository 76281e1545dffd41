"""References of mechanisms that look at chosen keys, and of PaTH."""

from typing import Any

import numpy as np

from tests.attention.oracles.heads import heads_scores, heads_values
from tests.attention.oracles.rows import Array, Config, Result, affine, part, weights_of
from tests.attention.position_oracles import POSITIONS


def lightning_indexer(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """Multi-head attention over the keys that the indexer rates best, the earlier of equal ones."""
    chosen = mask.copy()
    if config.get("selects", True):
        rated = indexed(params["indexer"], config, query, source)
        for b, i in np.ndindex(mask.shape[:2]):
            seen = sorted(np.flatnonzero(mask[b, i]), key=lambda j: (-rated[b, i, j], j))
            chosen[b, i] = np.isin(np.arange(mask.shape[2]), seen[: config.get("keep", 16)])
    scores = heads_scores(params, config, query, source, causal, mask)
    weights = weights_of(params, config, config["heads"], scores, query, chosen)
    return affine(params["out"], heads_values(params, config, source, weights)), weights


def indexed(
    params: Any, config: dict[str, Any], query: np.ndarray, source: np.ndarray
) -> np.ndarray:
    """I_ij = sum_h w_ih relu(p_ih . r_j) [B,Tq,Tk]."""
    heads = config.get("index_heads", 2)
    p, r = affine(params["w_query"], query), affine(params["w_key"], source)
    r = (r - r.mean(-1, keepdims=True)) / np.sqrt(r.var(-1, keepdims=True) + 1e-6)
    r = r * params["norm"]["scale"] + params["norm"]["bias"]
    width = r.shape[-1]
    share = affine(params["w_share"], query) / np.sqrt(heads) / np.sqrt(width)
    result = np.zeros((*query.shape[:2], source.shape[1]))
    for b, i, j in np.ndindex(result.shape):
        for h in range(heads):
            fit = p[b, i, h * width : (h + 1) * width] @ r[b, j]
            result[b, i, j] += share[b, i, h] * max(fit, 0.0)
    return result


def path(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """q_i^T H_i ... H_{j+1} k_j / sqrt(D), the matrices multiplied out; padding has H = I."""
    heads, shared = config["heads"], config.get("key_heads") or config["heads"]
    width = params["w_query"]["kernel"].shape[1] // heads
    q, k = affine(params["w_query"], query), affine(params["w_key"], source)
    w = affine(params["w_up"], affine(params["w_down"], source))
    beta = 2 / (1 + np.exp(-affine(params["w_beta"], source)))
    real, first = mask.any(axis=1), source.shape[1] - query.shape[1]

    def scores(b: int, h: int, i: int, before: np.ndarray) -> np.ndarray:
        g = h // (heads // shared)
        mine = slice(g * width, (g + 1) * width)
        result = np.zeros(source.shape[1])
        for j in range(source.shape[1]):
            passed = k[b, j, mine]
            for t in range(j + 1, first + i + 1):
                if real[b, t]:
                    one = w[b, t, mine] / np.linalg.norm(w[b, t, mine])
                    passed = (np.eye(width) - beta[b, t, g] * np.outer(one, one)) @ passed
            result[j] = q[b, i, h * width : (h + 1) * width] @ passed / np.sqrt(width)
        return result

    weights = weights_of(params, config, heads, scores, query, mask)
    return affine(params["out"], heads_values(params, config, source, weights)), weights


def native_sparse(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """The three looks of each head by loops, in the causal order whatever the mask."""
    at = {"key_heads": 1, "compress": 8, "stride": 4} | config
    at = {"block": 16, "blocks": 4, "window": 32} | at
    heads, shared = at["heads"], at["key_heads"] or at["heads"]
    batch, queries, keys = mask.shape
    first, width = keys - queries, params["w_query"]["kernel"].shape[1] // heads
    scheme, turns = part(config, "positions", "none")
    turn = POSITIONS[scheme]({}, turns, heads, width)
    q, k, v, g = (
        affine(params[f"w_{n}"], x)
        for n, x in (("query", query), ("key", source), ("value", source), ("gate", query))
    )
    k, v = (x.reshape(batch, keys, 3, shared, width) for x in (k, v))
    g = 1 / (1 + np.exp(-g.reshape(batch, queries, 3, heads)))
    q = q.reshape(batch, queries, heads, width)
    real = mask.any(axis=1)
    maps = np.zeros((batch, 3, heads, queries, keys))
    joined = np.zeros((batch, queries, heads, width))
    for b, i in np.ndindex(batch, queries):
        p = first + i
        turned = [
            [[turn.key(0, k[b, j, n, s], j) for s in range(shared)] for n in range(3)]
            for j in range(keys)
        ]
        for group in range(shared):
            mine = [h for h in range(heads) if h // (heads // shared) == group]
            asked = {h: turn.query(0, q[b, i, h], p) / np.sqrt(width) for h in mine}
            members = []
            for c in range(0, keys, at["stride"]):
                inside = [j for j in range(c, c + at["compress"]) if j < keys and real[b, j]]
                if c + at["compress"] - 1 <= p:
                    members.append(inside)
            looks = {
                h: _softmax(
                    [
                        asked[h] @ np.mean([turned[j][0][group] for j in inside], axis=0)
                        if inside
                        else None
                        for inside in members
                    ]
                )
                for h in mine
            }
            rated = {}
            for block in range(-(-keys // at["block"])):
                tokens = range(block * at["block"], min((block + 1) * at["block"], keys))
                if block > p // at["block"] or not any(real[b, j] for j in tokens):
                    continue
                unit = at["block"] // at["stride"]
                rated[block] = sum(
                    look[c]
                    for look in looks.values()
                    for m in range(unit)
                    for n in range(at["compress"] // at["stride"])
                    for c in [unit * block + m - n]
                    if 0 <= c < len(look)
                )
                if block in (0, p // at["block"], p // at["block"] - 1):
                    rated[block] = np.inf
            best = sorted(rated, key=lambda n: (-rated[n], n))[: at["blocks"]]
            seen = [j for j in range(min(p + 1, keys)) if real[b, j]]
            for h in mine:
                for c, inside in enumerate(members):
                    for j in inside:
                        maps[b, 0, h, i, j] += looks[h][c] / len(inside)
                for n, let in (
                    (1, [j for j in seen if j // at["block"] in best]),
                    (2, [j for j in seen if p - j < at["window"]]),
                ):
                    row = _softmax([asked[h] @ turned[j][n][group] for j in let])
                    maps[b, n, h, i, let] = row
                for n in range(3):
                    joined[b, i, h] += g[b, i, n, h] * (maps[b, n, h, i] @ v[b, :, n, group])
    return joined.reshape(batch, queries, -1) @ params["out"]["kernel"], maps.reshape(
        batch, 3 * heads, queries, keys
    )


def _softmax(scores: list[Any]) -> np.ndarray:
    """Over those that are numbers; None weighs nothing."""
    known = [score for score in scores if score is not None]
    if not known:
        return np.zeros(len(scores))
    raised = np.array([0.0 if score is None else np.exp(score - max(known)) for score in scores])
    return raised / raised.sum()
