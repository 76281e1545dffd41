"""References of the mechanisms with one head over the source as it is."""

from typing import Any

import numpy as np

from tests.attention.oracles.rows import Array, Config, Result, scored, weights_of


def single(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """e_ij = score(q_i, s_j); c_i = sum_j a_ij s_j."""
    weights = weights_of(
        params,
        config,
        1,
        lambda b, h, i, before: scored(params, config, "additive", query[b, i], source[b], before),
        query,
        mask,
    )
    return np.einsum("bhqk,bkd->bqd", weights, source), weights


def key_value(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
) -> Result:
    """Halves (k, v): e_ij = score(k_i, k_j), r_i = sum_j a_ij v_j, y_i = tanh(r_i W_r + v_i W_x);
    zeros where nothing is seen.
    """
    return _in_parts(params, config, query, source, mask, 2)


def key_value_predict(
    params: Any, config: Config, query: Array, source: Array, mask: Array, causal: bool = False
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
    asked, kept = query.shape[-1] // parts, source.shape[-1] // parts
    weights = weights_of(
        params,
        config,
        1,
        lambda b, h, i, before: scored(
            params, config, "additive", query[b, i, :asked], source[b, :, :kept], before
        ),
        query,
        mask,
    )
    batch, queries, keys = mask.shape
    context = np.zeros((batch, queries, params["of_own"]["kernel"].shape[1]))
    for b, i in np.ndindex(batch, queries):
        own = query[b, i, -asked:]
        r = sum(weights[b, 0, i, j] * source[b, j, kept : 2 * kept] for j in range(keys))
        if mask[b, i].any():
            context[b, i] = np.tanh(
                r @ params["of_found"]["kernel"] + own @ params["of_own"]["kernel"]
            )
    return context, weights
