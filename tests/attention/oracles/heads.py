"""References of the mechanisms with several heads."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.attention.oracles.rows import Array, Config, Result, affine, part, weights_of
from tests.attention.position_oracles import POSITIONS
from tests.attention.score_oracles import SCORES


def multihead(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """Head h: align(score(q_h, k_g) + bias) v_g, g = h // (H / K); the heads side by side times
    W_o.
    """
    scores = heads_scores(params, config, query, source, causal, mask)
    weights = weights_of(params, config, config["heads"], scores, query, mask)
    joined = heads_values(params, config, source, weights)
    return affine(params["out"], joined), weights


def talking_heads(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """Scores of head l: sum_h P_hl e_h; after the softmax, weights of head m: sum_l Q_lm a_l."""
    scores = heads_scores(params, config, query, source, causal, mask)
    heads = range(config["heads"])

    def mixed(b: int, m: int, i: int, before: np.ndarray) -> np.ndarray:
        return sum(params["mix_scores"][h, m] * scores(b, h, i, before) for h in heads)  # type: ignore[return-value]

    weights = weights_of(params, config, len(heads), mixed, query, mask)
    talked = np.stack(
        [sum(params["mix_weights"][h, m] * weights[:, h] for h in heads) for m in heads], axis=1
    )
    return affine(params["out"], heads_values(params, config, source, talked)), talked


def gated(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """The heads side by side, times sigmoid(x W_g) of every channel or every head, times W_o."""
    scores = heads_scores(params, config, query, source, causal, mask)
    weights = weights_of(params, config, config["heads"], scores, query, mask)
    gates = 1 / (1 + np.exp(-affine(params["w_gate"], query)))
    if config.get("gate") == "head":
        size = len(params["out"]["kernel"]) // config["heads"]
        gates = np.repeat(gates, size, axis=-1)
    return affine(params["out"], heads_values(params, config, source, weights) * gates), weights


def differential(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """Pairs of neighbouring heads: A_2h - lam A_2h+1 over values twice as wide; (1 - lam0) RMSNorm
    of each; times W_o.
    """
    pairs, start = config["heads"] // 2, config.get("start", 0.2)
    scores = heads_scores(params, config, query, source, causal, mask)
    single_maps = weights_of(params, config, config["heads"], scores, query, mask)
    lam = np.exp(params["a1"] @ params["b1"]) - np.exp(params["a2"] @ params["b2"]) + start
    weights = np.stack(
        [single_maps[:, 2 * h] - lam * single_maps[:, 2 * h + 1] for h in range(pairs)], axis=1
    )
    values = affine(params["w_value"], source)
    wide = values.shape[-1] // pairs
    joined = np.zeros((*query.shape[:2], values.shape[-1]))
    for b, h, i in np.ndindex(weights.shape[:3]):
        mine = slice(h * wide, (h + 1) * wide)
        result = weights[b, h, i] @ values[b, :, mine]
        joined[b, i, mine] = (
            (1 - start) * result / np.sqrt((result**2).mean() + 1e-5) * params["gain"]
        )
    return affine(params["out"], joined), weights


def heads_scores(
    params: Any,
    config: dict[str, Any],
    query: np.ndarray,
    source: np.ndarray,
    causal: bool,
    mask: np.ndarray | None = None,
) -> Callable[[int, int, int, np.ndarray], np.ndarray]:
    """(b, h, i, weights [i,Tk] of the rows before) to score(q_h, k_g) + position bias [Tk], g = h //
    (H / K). Schemes that look at whole rows need the mask.
    """
    heads, own = config["heads"], params.get("score", {})
    score, fields = part(config, "score", "scaled_dot")
    scheme, turns = part(config, "positions", "none")
    fit = SCORES[score]
    q, k = projected(params["w_query"], query, heads), projected(params["w_key"], source, heads)
    width = q.shape[-1] // heads
    group = heads // (config.get("key_heads") or heads)
    place = POSITIONS[scheme](params.get("positions", {}), turns, heads, width, causal)
    first = source.shape[1] - query.shape[1]

    def of_row(b: int, h: int, i: int, before: np.ndarray) -> np.ndarray:
        asked = q[b, i, h * width : (h + 1) * width]
        keys = k[b, :, h // group * width : (h // group + 1) * width]
        x = place.query(h, fit.query(own, fields, asked), first + i)
        scores = np.zeros(len(keys))
        for j, key in enumerate(keys):
            y = place.key(h, fit.key(own, fields, key), j)
            scores[j] = fit.pair(own, fields, x, y, j, *fit.past(own, fields, keys, before, j))
            scores[j] += place.bias(h, asked, key, first + i, j)
        return scores if mask is None else place.rows(h, asked, scores, mask[b, i])

    return of_row


def heads_values(
    params: Any, config: dict[str, Any], source: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The weighted sums of all heads side by side, [B,Tq,H*D]."""
    heads = config["heads"]
    scheme, turns = part(config, "positions", "none")
    v = projected(params["w_value"], source, heads)
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


def projected(params: Any, x: np.ndarray, heads: int) -> np.ndarray:
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


def forgetting(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """e_ij + log of the product of f over the tokens behind j, up to i; those behind i divide."""
    scores = heads_scores(params, config, query, source, causal, mask)
    f = 1 / (1 + np.exp(-affine(params["w_forget"], source)))
    f = np.where(mask.any(axis=1)[..., None], f, 1.0)
    first = source.shape[1] - query.shape[1]

    def decayed(b: int, h: int, i: int, before: np.ndarray) -> np.ndarray:
        result = scores(b, h, i, before)
        at = first + i
        return np.array(
            [
                one + np.log(f[b, j + 1 : at + 1, h]).sum() - np.log(f[b, at + 1 : j + 1, h]).sum()
                for j, one in enumerate(result)
            ]
        )

    weights = weights_of(params, config, config["heads"], decayed, query, mask)
    return affine(params["out"], heads_values(params, config, source, weights)), weights
