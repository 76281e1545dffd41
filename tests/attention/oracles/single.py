"""References of the mechanisms with one head over the source as it is."""

import numpy as np

from tests.attention.oracles.rows import Look, Result


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
