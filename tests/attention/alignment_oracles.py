"""Float64 NumPy references of the alignments.

(params, fields, scores [Tk], allowed [Tk], the mechanism's query [dq], position i of the query) to
weights [Tk]. More of the place, by keyword, for those that want it: `head`; `before`, the weights
[.., Tk] of the queries before it in the same look, in order; `length`, the real keys of the row (as
many as are allowed unless given); `scores_before` and `allowed_before`, what the queries before had for
scores and `allowed`; `first_before`, their scores in the first head with
-inf for what is masked there, and `real_before`, whether they are
no padding. Without a random stream, as at test time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray


def softmax(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """exp(e_j) / sum exp over the allowed j; zeros where nothing is allowed."""
    return _shared(scores, allowed, 0.0)


def softmax_plus_one(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """exp(e_j) / (1 + sum exp)."""
    return _shared(scores, allowed, 1.0)


def sink(
    params: Any,
    fields: Any,
    scores: Array,
    allowed: Array,
    query: Array,
    i: int,
    *,
    head: int = 0,
    **at: Any,
) -> Array:
    """exp(e_j) / (exp(b_h) + sum exp)."""
    return _shared(scores, allowed, float(np.exp(params["logit"][head])))


def _shared(scores: Array, allowed: Array, more: float) -> Array:
    weights = np.zeros(len(scores))
    chosen = np.flatnonzero(allowed)
    if len(chosen):
        top = scores[chosen].max()
        raised = np.exp(scores[chosen] - top)
        weights[chosen] = raised / (raised.sum() + more * np.exp(-top))
    return weights


def sparsemax(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """max(e_j - tau, 0): the one support size whose tau lies between its last key and the first key
    outside.
    """
    weights = np.zeros(len(scores))
    chosen = np.flatnonzero(allowed)
    ranked = sorted(scores[chosen], reverse=True)
    for size in range(1, len(ranked) + 1):
        tau = (sum(ranked[:size]) - 1.0) / size
        if ranked[size - 1] > tau and (size == len(ranked) or ranked[size] <= tau):
            weights[chosen] = np.maximum(scores[chosen] - tau, 0.0)
    return weights


def entmax(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """max((alpha - 1) e_j - tau, 0)^(1 / (alpha - 1)) with tau found by halving, as the paper
    defines it.
    """
    return _tsallis(scores, allowed, fields.get("alpha", 1.5))


def learned_entmax(
    params: Any,
    fields: Any,
    scores: Array,
    allowed: Array,
    query: Array,
    i: int,
    *,
    head: int = 0,
    **at: Any,
) -> Array:
    """The same with alpha = 1 + sigmoid(w_h)."""
    return _tsallis(scores, allowed, 1.0 + 1.0 / (1.0 + np.exp(-params["logit"][head])))


def _tsallis(scores: Array, allowed: Array, alpha: float) -> Array:
    weights = np.zeros(len(scores))
    chosen = np.flatnonzero(allowed)
    if len(chosen) == 0:
        return weights
    z = (alpha - 1.0) * scores[chosen]
    low, high = z.max() - 1.0, z.max()
    for _ in range(100):
        tau = (low + high) / 2
        if (np.maximum(z - tau, 0.0) ** (1.0 / (alpha - 1.0))).sum() > 1.0:
            low = tau
        else:
            high = tau
    weights[chosen] = np.maximum(z - (low + high) / 2, 0.0) ** (1.0 / (alpha - 1.0))
    return weights


def sigmoid(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """sigmoid(e_j - log n), n the allowed keys, or sigmoid(e_j + bias)."""
    weights = np.zeros(len(scores))
    for j in np.flatnonzero(allowed):
        bias = fields.get("bias")
        weights[j] = 1.0 / (
            1.0 + np.exp(-(scores[j] + (-np.log(allowed.sum()) if bias is None else bias)))
        )
    return weights


def local_m(
    params: Any,
    fields: Any,
    scores: Array,
    allowed: Array,
    query: Array,
    i: int,
    *,
    length: int | None = None,
    **at: Any,
) -> Array:
    """softmax over the keys at most D from min(i, n - 1)."""
    length = int(allowed.sum()) if length is None else length
    return _shared(
        scores, allowed & _window(len(scores), min(i, length - 1), fields.get("reach", 10)), 0.0
    )


def uniform(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """1 / n over the n allowed keys."""
    return allowed / max(int(allowed.sum()), 1)


def diagonal(
    params: Any,
    fields: Any,
    scores: Array,
    allowed: Array,
    query: Array,
    i: int,
    *,
    length: int | None = None,
    **at: Any,
) -> Array:
    """1 / m over the m allowed keys at most D from min(i, n - 1)."""
    length = int(allowed.sum()) if length is None else length
    near = allowed & _window(len(scores), min(i, length - 1), fields.get("reach", 0))
    return near / max(int(near.sum()), 1)


def local_p(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """softmax over the keys at most D from floor(p), times the Gaussian about p."""
    return _predicted(params, fields, scores, allowed, query, **at)


def local_p_renormalised(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """The same over its sum."""
    weights = _predicted(params, fields, scores, allowed, query, **at)
    return weights / weights.sum() if weights.any() else weights


def _predicted(
    params: Any,
    fields: Any,
    scores: Array,
    allowed: Array,
    query: Array,
    *,
    head: int = 0,
    length: int | None = None,
    **at: Any,
) -> Array:
    reach = fields.get("reach", 10)
    length = int(allowed.sum()) if length is None else length
    times = {"n": length, "n - 1": length - 1}[fields.get("span", "n")]
    p = times / (
        1.0 + np.exp(-np.tanh(query @ params["w_position"]["kernel"]) @ params["v"][:, head])
    )
    weights = _shared(scores, allowed & _window(len(scores), int(np.floor(p)), reach), 0.0)
    for s in range(len(scores)):
        weights[s] *= np.exp(-((s - p) ** 2) / (2 * (reach / 2) ** 2))
    return weights


def _window(keys: int, centre: int, reach: int) -> Array:
    return np.array([centre - reach <= s <= centre + reach for s in range(keys)])


def monotonic(
    params: Any,
    fields: Any,
    scores: Array,
    allowed: Array,
    query: Array,
    i: int,
    *,
    head: int = 0,
    before: Any = (),
    **at: Any,
) -> Array:
    """Equation 9 of Raffel et al.: p_j sum_{k <= j} a_before,k prod_{k <= l < j} (1 - p_l); queries
    that saw nothing do not count.
    """
    stop = np.where(allowed, 1.0 / (1.0 + np.exp(-(scores + params["offset"][head]))), 0.0)
    last = np.eye(len(scores))[0]
    for row in before:
        last = row if row.any() else last
    weights = np.zeros(len(scores))
    for j in range(len(scores)):
        weights[j] = stop[j] * sum(
            last[k] * np.prod([1.0 - stop[l] for l in range(k, j)]) for k in range(j + 1)
        )
    return weights


def temporal(
    params: Any,
    fields: Any,
    scores: Array,
    allowed: Array,
    query: Array,
    i: int,
    *,
    scores_before: Any = (),
    allowed_before: Any = (),
    **at: Any,
) -> Array:
    """b_j = sum over earlier rows of their softmax, or of exp(e_j); a_j = softmax(e)_j / b_j over
    its sum, with b = 1 for keys that no earlier row was allowed.
    """
    total, seen = np.zeros(len(scores)), np.zeros(len(scores), bool)
    for row, let in zip(scores_before, allowed_before, strict=True):
        raised = np.where(let, np.exp(row), 0.0)
        if fields.get("past", "weights") == "weights":
            raised = _shared(row, let, 0.0)
        total, seen = total + raised, seen | let
    found = _shared(scores, allowed, 0.0) / np.where(seen, np.where(seen, total, 1.0), 1.0)
    return found / found.sum() if allowed.any() else found


def hard(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """1 at the first of the best allowed keys."""
    weights = np.zeros(len(scores))
    if allowed.any():
        weights[max(np.flatnonzero(allowed), key=lambda j: scores[j])] = 1.0
    return weights


def scalable_softmax(
    params: Any,
    fields: Any,
    scores: Array,
    allowed: Array,
    query: Array,
    i: int,
    *,
    head: int = 0,
    **at: Any,
) -> Array:
    """n^((s + b / log n) e_j) over its sum, n the allowed keys."""
    factor = params["s"][head] * np.log(max(allowed.sum(), 1))
    return _shared((factor + params.get("b", np.zeros(head + 1))[head]) * scores, allowed, 0.0)


def softpick(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """max(e^x - 1, 0) over the sum of |e^x - 1|, all over e^m for the sake of large x."""
    chosen, weights = np.flatnonzero(allowed), np.zeros(len(scores))
    if len(chosen):
        m = max(0.0, scores[chosen].max())
        grown = np.exp(scores[chosen] - m) - np.exp(-m)
        total = np.abs(grown).sum()
        weights[chosen] = np.maximum(grown, 0.0) / (total if total else 1.0)
    return weights


def stick_breaking(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """Back from the key before the query: sigmoid(z_j) of what is left of a stick of length 1."""
    left, weights = 1.0, np.zeros(len(scores))
    for j in range(min(i, len(scores)) - 1, -1, -1):
        if allowed[j]:
            share = 1.0 / (1.0 + np.exp(-scores[j]))
            weights[j], left = share * left, (1.0 - share) * left
    return weights


def selective(
    params: Any,
    fields: Any,
    scores: Array,
    allowed: Array,
    query: Array,
    i: int,
    *,
    first_before: Any = (),
    real_before: Any = (),
    **at: Any,
) -> Array:
    """softmax of e_j - sum over earlier queries l of relu(e^0_lj), for 0 < j < l."""
    f = np.zeros(len(scores))
    for back, (row, real) in enumerate(zip(first_before[::-1], real_before[::-1], strict=True), 1):
        for j in range(1, min(i - back, len(scores))):
            f[j] += max(row[j], 0.0) if real else 0.0
    return _shared(scores - f, allowed, 0.0)


def top_k(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """softmax over the `keep` best."""
    best = sorted(np.flatnonzero(allowed), key=lambda j: (-scores[j], j))[: fields.get("keep", 16)]
    return _shared(scores, np.isin(np.arange(len(scores)), best), 0.0)


def moba(
    params: Any, fields: Any, scores: Array, allowed: Array, query: Array, i: int, **at: Any
) -> Array:
    """softmax over the own block and the best of the blocks before it, by the mean of its scores."""
    size, own = fields.get("block", 16), i // fields.get("block", 16)
    block = np.arange(len(scores)) // size
    gates = {
        b: np.inf if b == own else scores[allowed & (block == b)].mean()
        for b in range(own + 1)
        if (allowed & (block == b)).any()
    }
    best = sorted(gates, key=lambda b: (-gates[b], b))[: fields.get("blocks", 3)]
    return _shared(scores, allowed & np.isin(block, best), 0.0)


ALIGNMENTS = {
    "scalable_softmax": scalable_softmax,
    "softpick": softpick,
    "stick_breaking": stick_breaking,
    "selective": selective,
    "top_k": top_k,
    "moba": moba,
    "softmax": softmax,
    "softmax_plus_one": softmax_plus_one,
    "sink": sink,
    "sparsemax": sparsemax,
    "entmax": entmax,
    "learned_entmax": learned_entmax,
    "sigmoid": sigmoid,
    "local_m": local_m,
    "uniform": uniform,
    "diagonal": diagonal,
    "local_p": local_p,
    "local_p_renormalised": local_p_renormalised,
    "monotonic": monotonic,
    "temporal": temporal,
    "hard": hard,
    "straight_through": hard,
    "gumbel": hard,
}
