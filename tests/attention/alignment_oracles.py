"""Float64 NumPy references of the alignments: a `Row` to its weights [Tk], without a random stream,
as at test time.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.layers.oracles import sigmoid as sigmoid_of

Array = np.ndarray


@dataclasses.dataclass(frozen=True)
class Row:
    """The scores of one query and one head, and what an alignment may know beside them; each
    oracle takes the few of these 13 fields that its formula has.

    Attributes:
      params, fields: of the alignment.
      scores, allowed: [Tk].
      query, i: the mechanism's query [dq] and its position.
      head: its number.
      length: the real keys of the sequence; 0: as many as are allowed.
      before, scores_before, allowed_before: weights, scores and `allowed` [i,Tk] of the queries
        before it in the same look, in order.
      first_before: their scores in the first head, with -inf for what is masked there.
      real_before: whether they are no padding.
    """

    params: Any
    fields: Any
    scores: Array
    allowed: Array
    query: Array
    i: int
    head: int = 0
    length: int = 0
    before: Sequence[Array] = ()
    scores_before: Sequence[Array] = ()
    allowed_before: Sequence[Array] = ()
    first_before: Sequence[Array] = ()
    real_before: Sequence[bool] = ()

    def near(self, centre: int, default: int) -> Array:
        """The allowed keys at most D from a centre."""
        reach = self.fields.get("reach", default)
        return self.allowed & (abs(np.arange(len(self.scores)) - centre) <= reach)

    def real(self) -> int:
        """How many keys are real."""
        return self.length or int(self.allowed.sum())


def shared(scores: Array, allowed: Array, more: float = 0.0) -> Array:
    """exp(e_j) / (more + sum exp) over the allowed j; zeros where nothing is allowed."""
    weights = np.zeros(len(scores))
    chosen = np.flatnonzero(allowed)
    if len(chosen):
        top = scores[chosen].max()
        raised = np.exp(scores[chosen] - top)
        weights[chosen] = raised / (raised.sum() + more * np.exp(-top))
    return weights


def softmax(row: Row) -> Array:
    """exp(e_j) / sum exp."""
    return shared(row.scores, row.allowed)


def softmax_plus_one(row: Row) -> Array:
    """exp(e_j) / (1 + sum exp)."""
    return shared(row.scores, row.allowed, 1.0)


def sink(row: Row) -> Array:
    """exp(e_j) / (exp(b_h) + sum exp)."""
    return shared(row.scores, row.allowed, float(np.exp(row.params["logit"][row.head])))


def sparsemax(row: Row) -> Array:
    """max(e_j - tau, 0): the one support size whose tau lies between its last key and the first key
    outside.
    """
    weights = np.zeros(len(row.scores))
    chosen = np.flatnonzero(row.allowed)
    ranked = sorted(row.scores[chosen], reverse=True)
    for size in range(1, len(ranked) + 1):
        tau = (sum(ranked[:size]) - 1.0) / size
        if ranked[size - 1] > tau and (size == len(ranked) or ranked[size] <= tau):
            weights[chosen] = np.maximum(row.scores[chosen] - tau, 0.0)
    return weights


def entmax(row: Row) -> Array:
    """max((alpha - 1) e_j - tau, 0)^(1 / (alpha - 1)) with tau found by halving, as the paper
    defines it.
    """
    return tsallis(row, row.fields.get("alpha", 1.5))


def learned_entmax(row: Row) -> Array:
    """The same with alpha = 1 + sigmoid(w_h)."""
    return tsallis(row, 1.0 + sigmoid_of(row.params["logit"][row.head]))


def tsallis(row: Row, alpha: float) -> Array:
    """entmax with this alpha."""
    weights = np.zeros(len(row.scores))
    chosen = np.flatnonzero(row.allowed)
    if len(chosen) == 0:
        return weights
    z = (alpha - 1.0) * row.scores[chosen]
    low, high = z.max() - 1.0, z.max()
    for _ in range(100):
        tau = (low + high) / 2
        if (np.maximum(z - tau, 0.0) ** (1.0 / (alpha - 1.0))).sum() > 1.0:
            low = tau
        else:
            high = tau
    weights[chosen] = np.maximum(z - (low + high) / 2, 0.0) ** (1.0 / (alpha - 1.0))
    return weights


def sigmoid(row: Row) -> Array:
    """sigmoid(e_j - log n), n the allowed keys, or sigmoid(e_j + bias)."""
    if not row.allowed.any():
        return np.zeros(len(row.scores))
    bias = row.fields.get("bias")
    bias = -np.log(row.allowed.sum()) if bias is None else bias
    return np.where(row.allowed, sigmoid_of(row.scores + bias), 0.0)


def local_m(row: Row) -> Array:
    """softmax over the keys at most D from min(i, n - 1)."""
    return shared(row.scores, row.near(min(row.i, row.real() - 1), 10))


def uniform(row: Row) -> Array:
    """1 / n over the n allowed keys."""
    return row.allowed / max(int(row.allowed.sum()), 1)


def diagonal(row: Row) -> Array:
    """1 / m over the m allowed keys at most D from min(i, n - 1)."""
    near = row.near(min(row.i, row.real() - 1), 0)
    return near / max(int(near.sum()), 1)


def local_p(row: Row) -> Array:
    """softmax over the keys at most D from floor(p), times the Gaussian about p."""
    times = row.real() - (row.fields.get("span", "n") == "n - 1")
    hidden = np.tanh(row.query @ row.params["w_position"]["kernel"])
    p = times * sigmoid_of(hidden @ row.params["v"][:, row.head])
    weights = shared(row.scores, row.near(int(np.floor(p)), 10))
    spread = row.fields.get("reach", 10) / 2
    return weights * np.exp(-((np.arange(len(weights)) - p) ** 2) / (2 * spread**2))


def local_p_renormalised(row: Row) -> Array:
    """The same over its sum."""
    weights = local_p(row)
    return weights / weights.sum() if weights.any() else weights


def monotonic(row: Row) -> Array:
    """Equation 9 of Raffel et al.: p_j sum_{k <= j} a_before,k prod_{k <= l < j} (1 - p_l); queries
    that saw nothing do not count.
    """
    stop = np.where(row.allowed, sigmoid_of(row.scores + row.params["offset"][row.head]), 0.0)
    last = np.eye(len(row.scores))[0]
    for weights in row.before:
        last = weights if weights.any() else last
    weights = np.zeros(len(row.scores))
    for j in range(len(row.scores)):
        weights[j] = stop[j] * sum(
            last[k] * np.prod([1.0 - stop[l] for l in range(k, j)]) for k in range(j + 1)
        )
    return weights


def temporal(row: Row) -> Array:
    """b_j = sum over earlier rows of their softmax, or of exp(e_j); a_j = softmax(e)_j / b_j over
    its sum, with b = 1 for keys that no earlier row was allowed.
    """
    total, seen = np.zeros(len(row.scores)), np.zeros(len(row.scores), bool)
    for scores, allowed in zip(row.scores_before, row.allowed_before, strict=True):
        raised = np.where(allowed, np.exp(scores), 0.0)
        if row.fields.get("past", "weights") == "weights":
            raised = shared(scores, allowed)
        total, seen = total + raised, seen | allowed
    weights = softmax(row) / np.where(seen, np.where(seen, total, 1.0), 1.0)
    return weights / weights.sum() if row.allowed.any() else weights


def hard(row: Row) -> Array:
    """1 at the first of the best allowed keys."""
    weights = np.zeros(len(row.scores))
    if row.allowed.any():
        weights[max(np.flatnonzero(row.allowed), key=lambda j: row.scores[j])] = 1.0
    return weights


def scalable_softmax(row: Row) -> Array:
    """n^((s + b / log n) e_j) over its sum, n the allowed keys."""
    factor = row.params["s"][row.head] * np.log(max(row.allowed.sum(), 1))
    bias = row.params["b"][row.head] if "b" in row.params else 0.0
    return shared((factor + bias) * row.scores, row.allowed)


def softpick(row: Row) -> Array:
    """max(e^x - 1, 0) over the sum of |e^x - 1|, all over e^m for the sake of large x."""
    chosen, weights = np.flatnonzero(row.allowed), np.zeros(len(row.scores))
    if len(chosen):
        m = max(0.0, row.scores[chosen].max())
        grown = np.exp(row.scores[chosen] - m) - np.exp(-m)
        total = np.abs(grown).sum()
        weights[chosen] = np.maximum(grown, 0.0) / (total if total else 1.0)
    return weights


def stick_breaking(row: Row) -> Array:
    """Back from the key before the query: sigmoid(z_j) of what is left of a stick of length 1."""
    left, weights = 1.0, np.zeros(len(row.scores))
    for j in range(min(row.i, len(row.scores)) - 1, -1, -1):
        if row.allowed[j]:
            share = sigmoid_of(row.scores[j])
            weights[j], left = share * left, (1.0 - share) * left
    return weights


def selective(row: Row) -> Array:
    """softmax of e_j - sum over earlier queries l of relu(e^0_lj), for 0 < j < l."""
    f = np.zeros(len(row.scores))
    earlier = zip(row.first_before[::-1], row.real_before[::-1], strict=True)
    for back, (first, real) in enumerate(earlier, 1):
        for j in range(1, min(row.i - back, len(f))):
            f[j] += max(first[j], 0.0) if real else 0.0
    return shared(row.scores - f, row.allowed)


def top_k(row: Row) -> Array:
    """softmax over the `keep` best."""
    ranked = sorted(np.flatnonzero(row.allowed), key=lambda j: (-row.scores[j], j))
    return shared(row.scores, np.isin(range(len(row.scores)), ranked[: row.fields.get("keep", 16)]))


def moba(row: Row) -> Array:
    """softmax over the own block and the best of the blocks before it, by the mean of its scores."""
    size = row.fields.get("block", 16)
    block, own = np.arange(len(row.scores)) // size, row.i // size
    gates = {
        b: np.inf if b == own else row.scores[row.allowed & (block == b)].mean()
        for b in range(own + 1)
        if (row.allowed & (block == b)).any()
    }
    best = sorted(gates, key=lambda b: (-gates[b], b))[: row.fields.get("blocks", 3)]
    return shared(row.scores, row.allowed & np.isin(block, best))


ALIGNMENTS: dict[str, Callable[[Row], Array]] = {
    oracle.__name__: oracle
    for oracle in (
        *(softmax, softmax_plus_one, sink, scalable_softmax, softpick, sparsemax, entmax),
        *(learned_entmax, sigmoid, uniform, diagonal, local_m, local_p, local_p_renormalised),
        *(monotonic, temporal, hard, stick_breaking, selective, top_k, moba),
    )
} | {"straight_through": hard, "gumbel": hard}


def aligned(
    name: str,
    params: Any,
    fields: Any,
    scores: Callable[[int, int, int, Array], Array],
    allowed: Array,
    query: Array,
    lengths: Sequence[int],
) -> Array:
    """The weights [B,H,Tq,Tk] of an alignment: each row on its own, after the rows before it.

    Args:
      params, fields: of the alignment.
      scores: (b, h, i, the weights [i,Tk] of the rows before) to the scores [Tk] of a row.
      allowed: bool [B,H,Tq,Tk], the last query on the last key.
      query: [B,Tq,dq].
      lengths: how many keys of each row are real.
    """
    weights, raw = np.zeros(allowed.shape), np.zeros(allowed.shape)
    first = allowed.shape[3] - allowed.shape[2]
    for b, h, i in np.ndindex(allowed.shape[:3]):
        raw[b, h, i] = scores(b, h, i, weights[b, h, :i])
        row = Row(
            params,
            fields,
            raw[b, h, i],
            allowed[b, h, i],
            query[b, i],
            first + i,
            head=h,
            length=int(lengths[b]),
            before=weights[b, h, :i],
            scores_before=raw[b, h, :i],
            allowed_before=allowed[b, h, :i],
            first_before=np.where(allowed[b, 0, :i], raw[b, 0, :i], -np.inf),
            real_before=first + np.arange(i) < lengths[b],
        )
        weights[b, h, i] = ALIGNMENTS[name](row)
    return weights
