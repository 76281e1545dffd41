"""References of mechanisms that look at chosen keys, and of PaTH."""

from typing import Any

import numpy as np

from tests.attention.alignment_oracles import shared as softmax_over
from tests.attention.oracles.heads import heads_scores, heads_values
from tests.attention.oracles.rows import Array, Look, Result
from tests.layers.oracles import affine, sigmoid


def lightning_indexer(look: Look) -> Result:
    """Multi-head attention over the keys that the indexer rates best, the earlier of equal ones."""
    chosen, scores = look.mask.copy(), heads_scores(look)
    if look.config.get("selects", True):
        rated = indexed(look.params["indexer"], look.config, look.query, look.source)
        for b, i in np.ndindex(chosen.shape[:2]):
            seen = sorted(np.flatnonzero(look.mask[b, i]), key=lambda j: (-rated[b, i, j], j))
            best = seen[: look.config.get("keep", 16)]
            chosen[b, i] = np.isin(np.arange(chosen.shape[2]), best)
    weights = look._replace(mask=chosen).weights(look.heads, scores)
    return look.layer("out", heads_values(look, weights)), weights


def indexed(params: Any, config: dict[str, Any], query: Array, source: Array) -> Array:
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


def path(look: Look) -> Result:
    """q_i^T H_i ... H_{j+1} k_j / sqrt(D), the matrices multiplied out; padding has H = I."""
    width = look.params["w_query"]["kernel"].shape[1] // look.heads
    q, k = look.layer("w_query", look.query), look.layer("w_key", look.source)
    w = look.layer("w_up", look.layer("w_down", look.source))
    beta = 2 * sigmoid(look.layer("w_beta", look.source))
    real = look.mask.any(axis=1)

    def scores(b: int, h: int, i: int, before: Array) -> Array:
        g = h // look.group
        mine = slice(g * width, (g + 1) * width)
        result = np.zeros(look.source.shape[1])
        for j in range(look.source.shape[1]):
            passed = k[b, j, mine]
            for t in range(j + 1, look.first + i + 1):
                if real[b, t]:
                    one = w[b, t, mine] / np.linalg.norm(w[b, t, mine])
                    passed = (np.eye(width) - beta[b, t, g] * np.outer(one, one)) @ passed
            result[j] = q[b, i, h * width : (h + 1) * width] @ passed / np.sqrt(width)
        return result

    weights = look.weights(look.heads, scores)
    return look.layer("out", heads_values(look, weights)), weights


def native_sparse(look: Look) -> Result:
    """The three looks of each head by loops, in the causal order whatever the mask."""
    at = {"key_heads": 1, "compress": 8, "stride": 4, "block": 16, "blocks": 4, "window": 32}
    at |= look.config
    heads, shared = at["heads"], at["key_heads"] or at["heads"]
    batch, queries, keys = look.mask.shape
    first, width = look.first, look.params["w_query"]["kernel"].shape[1] // heads
    turn, real = look.place(width, {}), look.mask.any(axis=1)
    q, k, v = look.projected()
    k, v = (x.reshape(batch, keys, 3, shared, width) for x in (k, v))
    g = sigmoid(look.layer("w_gate", look.query).reshape(batch, queries, 3, heads))
    q = q.reshape(batch, queries, heads, width)
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
            # of a block without a real token any mean will do: it weighs nothing
            means = [
                np.mean([turned[j][0][group] for j in inside or [0]], axis=0) for inside in members
            ]
            full = np.array([bool(inside) for inside in members], bool)
            looks = {h: softmax_over(np.array([asked[h] @ m for m in means]), full) for h in mine}
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
                    scores = np.array([asked[h] @ turned[j][n][group] for j in let])
                    maps[b, n, h, i, let] = softmax_over(scores, np.ones(len(let), bool))
                for n in range(3):
                    joined[b, i, h] += g[b, i, n, h] * (maps[b, n, h, i] @ v[b, :, n, group])
    maps = maps.reshape(batch, 3 * heads, queries, keys)
    return joined.reshape(batch, queries, -1) @ look.params["out"]["kernel"], maps
