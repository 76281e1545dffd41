"""Weights that depend on the keys between a key and its query, or on earlier queries.

The class of each has its formula, cost and source. Axis letters: see `protocol`.
"""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import LOW, Alignment, full_mask, log_softmax, softmax
from attnlab.attention.view import View, after_each, in_order, out_of_order
from attnlab.errors import at_least
from attnlab.layers.dense import widened


class StickBreaking(Alignment):
    """a_ij = sigmoid(e_ij) prod_{j<k<i} (1 - sigmoid(e_ik)), j < i; no parameters.

        a_ij = sigmoid(e_ij) prod over j < k < i of (1 - sigmoid(e_ik))            j < i

    Going back from the query, key j takes the share sigmoid(e_ij). A row sums to 1 minus what is
    left, prod_{k<i} (1 - sigmoid(e_ik)). The query's own token is not attended to, so the first
    token sees nothing. All scores 0 give 2^-(i-j): the order of the keys counts without any
    position scheme. Keys that may not be seen take nothing. Cost: 14 FLOPs for each pair, of them a
    sum over the keys behind it; no parameters. Source: S. Tan, S. Yang, A. Courville, R. Panda, Y.
    Shen, "Scaling Stick-Breaking Attention", ICLR 2025 (arXiv 2410.17980), sections 2 and 3;
    computed in logarithms as there, log a_ij = log sigmoid(e_ij) - sum_{j<k<i} softplus(e_ik). The
    released kernel also returns what is left, for a variant that gives it to the query's own value;
    this is not here.

    Card: stick-breaking; Tan et al., Scaling Stick-Breaking Attention, ICLR 2025; time T^2.
    """

    sums_to = "at most one"
    looks_at = frozenset({"positions"})
    looks_between = True

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Computes stick-breaking weights [B,H,Tq,Tk] from the scores e: for an allowed key j
        before query i, sigmoid(e_ij) times the product of 1 - sigmoid(e_ik) over the allowed keys k
        between them, and 0 for other keys. See `Alignment.__call__`.
        """
        scores = widened(scores)
        if not scores.shape[-1]:
            return scores
        earlier = view.columns < view.rows
        allowed = jnp.broadcast_to(earlier if mask is None else earlier & mask, scores.shape)
        scores = jnp.where(allowed, scores, 0.0)
        ordered, inverse = in_order(jnp.where(allowed, jax.nn.softplus(scores), 0.0), view.keys)
        nearer = out_of_order(after_each(ordered), inverse)
        return jnp.where(allowed, jnp.exp(jax.nn.log_sigmoid(scores) - nearer), 0.0)


class Selective(Alignment):
    """Softmax of e_ij - f_ij, f summed over the earlier queries of the first head; no parameters.

        g_lj = relu(e^0_lj)  for 0 < j < l, else 0            e^0: the scores of the first head
        f_ij = sum over l < i of g_lj                         what the tokens before i take from key j
        a_ij = softmax over j of (e_ij - f_ij)                in every head

    The first token of the sequence and a token's own key are never taken from, so the last two
    tokens are always there. Scores of the first head that are all below zero give softmax. No
    parameters. A query that is padding takes nothing from anybody. f is what is carried from look
    to look, one number for each key. Cost: 6 FLOPs for each pair, and a sum over earlier queries of
    one head. Source: Y. Leviathan, M. Kalman, Y. Matias, "Selective Attention Improves
    Transformer", ICLR 2025 (arXiv 2410.02703), section 3. There a key whose f is large may also be
    dropped from the cache; here all are kept.

    Card: selective; Leviathan et al., Selective Attention Improves Transformer, ICLR 2025;
    time T^2.
    """

    form = "look"
    looks_at = frozenset({"positions"})
    looks_between = True
    meeting = True

    def initial_history(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """See `Alignment.initial_history`: f [B,Tk] of the first query, zeros."""
        return jnp.zeros((shape[0], shape[-1]), dtype)

    def go_on(
        self, scores: jax.Array, mask: jax.Array | None, view: View, history: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Returns softmax weights [B,H,Tq,Tk] of the scores less f_ij, the sum over earlier queries
        of their positive scores of head 0 for key j, if it lies after position 0 and before that
        query, and f [B,Tk] for the next query; `history` is f of the first. See `Alignment.go_on`.
        """
        scores = widened(scores)
        eligible = (view.columns > 0) & (view.columns < view.rows) & present(view)
        if mask is not None:
            eligible = eligible & mask[:, :1]
        first = scores[:, 0]
        eligible = jnp.broadcast_to(eligible[:, 0], first.shape)
        gains = jax.nn.relu(jnp.where(eligible, first, 0.0))  # g [B,Tq,Tk]
        total = jnp.cumsum(jnp.concatenate([history[:, None], gains], axis=1), axis=1)
        return softmax(scores - total[:, None, :-1], mask), total[:, -1]


def present(view: View) -> jax.Array:
    """Returns whether the token of a query is real, since its key is: bool broadcastable to
    [B,1,Tq,1].
    """
    if view.valid is None:
        return jnp.ones((1, 1, 1, 1), bool)
    diagonal = (view.columns == view.rows) & view.valid[:, None, None, :]
    return diagonal.any(axis=-1, keepdims=True)


class Temporal(Alignment):
    """Softmax weights, divided by the sum of earlier weights of each key and renormalised.

        a'_ij = softmax over j of e_ij        b_ij = sum over the queries l before i of a'_lj
        a_ij  = a'_ij / b_ij over its sum;    a_1 = a'_1

    `past="scores"` is the form of Sankaran et al. 2016 and Paulus et al. 2018: b_ij = sum_l
    exp(e_lj), and a_ij = exp(e_ij) / b_ij over its sum. A key that no earlier query was allowed to
    see has b = 1, as all have at the first query. Computed in logarithms; log b [B,H,Tk] is passed
    from look to look. Cost: about 24 FLOPs for each pair. Parameters: none. Source: R. Nallapati,
    B. Zhou, C. dos Santos, C. Gulcehre, B. Xiang, "Abstractive Text Summarization using
    Sequence-to-sequence RNNs and Beyond", CoNLL 2016 (arXiv 1602.06023), whose model takes it from
    B. Sankaran, H. Mi, Y. Al-Onaizan, A. Ittycheriah, "Temporal Attention Model for Neural Machine
    Translation", 2016 (arXiv 1608.02927); R. Paulus, C. Xiong, R. Socher, "A Deep Reinforced Model
    for Abstractive Summarization", ICLR 2018, equations 2 to 4.

    Attributes:
      past: what is summed over earlier queries: their softmax "weights" (Nallapati et al.), or the
        exponentials of their "scores" (Sankaran et al., Paulus et al.).

    Card: temporal; Nallapati et al., Abstractive Text Summarization using Sequence-to-sequence
    RNNs, CoNLL 2016; time T^2.
    """

    past: Literal["weights", "scores"] = "weights"

    form = "look"

    def initial_history(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """See `Alignment.initial_history`: log b [B,H,Tk], `LOW` for keys that no query saw."""
        return jnp.full(shape, LOW, dtype)

    def go_on(
        self, scores: jax.Array, mask: jax.Array | None, view: View, history: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Divides the softmax weights (or exponentials of the scores, by the field `past`) of each
        key by their sum over earlier queries, normalises them anew, and returns them with the
        logarithms [B,H,Tk] of the new sums; `history` has the logarithms so far. See
        `Alignment.go_on`.
        """
        if not scores.shape[-1]:
            return widened(scores), history
        allowed = full_mask(mask, scores.shape[-1])
        logs = log_softmax(scores, mask) if self.past == "weights" else widened(scores)
        logs = jnp.where(allowed, logs, LOW)
        rows = jnp.concatenate([history[:, :, None], logs], axis=2)
        sums = jax.lax.associative_scan(jnp.logaddexp, rows, axis=2)
        past = sums[:, :, :-1]
        modulated = logs - jnp.where(past > 0.5 * LOW, past, 0.0)
        return softmax(modulated, mask), sums[:, :, -1]


class Monotonic(Alignment):
    """The expected monotonic alignment over all queries of one look.

    For each query the reader continues from the key where it stopped for the previous query. It
    stops at key j with probability p_ij.

        p_ij = sigmoid(e_ij + r_h)            q_ij = (1 - p_i,j-1) q_i,j-1 + a_i-1,j            a_ij = p_ij q_ij

    q_ij is the probability of reaching key j; a_0 is 1 on the first key. Weights sum to at most 1:
    with the rest of the probability the reader passes the end. This form divides neither by p nor
    by products of 1 - p, so it is stable. It is an associative scan over j and a scan over i. Cost:
    10 Tq Tk FLOPs for each head, Tq steps one after the other, each of log2(Tk). Parameters: H
    offsets. Source: C. Raffel, M.-T. Luong, P. Liu, R. Weiss, D. Eck, "Online and Linear-Time
    Attention by Enforcing Monotonic Alignments", ICML 2017, equations 9 to 14; Gaussian noise
    before the sigmoid (section 2.6), which pushes p towards 0 or 1, is added if the caller passes
    the random stream "sample". The paper has one offset r and its own score; the offset here is per
    head and the score is whatever the config names. The paper's hard reader for test time is not
    here: if p is near 0 or 1, the expectation equals its path.

    The alignment of a query depends on that of the previous query: a_i-1 is passed from look to
    look (`history`). A query that may see nothing passes on the alignment of its predecessor. The
    first look starts from the first key, a_1j = p_1j prod_{l<j} (1 - p_1l).

    Attributes:
      start: r, the start value of the learned offset of each head; for longer sources it should be
        more negative.
      noise: standard deviation of the noise before the sigmoid, if the random stream "sample" is
        given.

    Card: monotonic; Raffel et al., Enforcing Monotonic Alignments, ICML 2017; time T^2.
    """

    start: float = -1.0
    noise: float = 1.0

    form = "look"
    sums_to = "at most one"
    looks_at = frozenset({"positions"})

    def setup(self) -> None:
        at_least(0, "alignment monotonic", noise=self.noise)

    def initial_history(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """See `Alignment.initial_history`: a_0 [B,H,Tk], 1 on the first key."""
        return jnp.zeros(shape, dtype).at[..., :1].set(1.0)

    @nn.compact
    def go_on(
        self, scores: jax.Array, mask: jax.Array | None, view: View, history: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Computes expected monotonic alignments [B,H,Tq,Tk] from stopping probabilities
        sigmoid(score + offset), continuing from the alignment `history` [B,H,Tk] of the query
        before, and returns them and the one of the last query that may see a key; scores get noise
        if the random stream "sample" is given. See `Alignment.go_on`.
        """
        offset = self.param("offset", nn.initializers.constant(self.start), (scores.shape[1],))
        energy = widened(scores) + widened(offset)[:, None, None]
        if self.has_rng("sample"):
            energy = energy + self.noise * jax.random.normal(
                self.make_rng("sample"), energy.shape, energy.dtype
            )
        allowed = full_mask(mask, scores.shape[-1])
        live = jnp.broadcast_to(allowed.any(axis=-1, keepdims=True), (*scores.shape[:-1], 1))
        return expected(jnp.where(allowed, jax.nn.sigmoid(energy), 0.0), live, history)


def expected(stop: jax.Array, live: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Computes the expected monotonic alignments [B,H,Tq,Tk] of consecutive queries from stopping
    probabilities `stop` [B,H,Tq,Tk], and returns them with the alignment [B,H,Tk] of the last query
    that is `live`; `start` is the alignment before the first query.

    Args:
      stop: [B,H,Tq,Tk], p, 0 where masked.
      live: [B,H,Tq,1] bool, queries that may see a key; the others pass on the alignment they got.
      start: [B,H,Tk], the alignment of the query before the first.

    Returns:
      a [B,H,Tq,Tk], and [B,H,Tk] the `start` of the next query.
    """
    if not stop.shape[-1]:
        return stop, start

    def align(start: jax.Array, query: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        """Computes the alignment of one query from that of the query before; a query that may see
        no key gets zeros, and passes the earlier alignment on.
        """
        stop, live = query
        passing = jnp.concatenate([jnp.zeros_like(stop[..., :1]), 1.0 - stop[..., :-1]], axis=-1)
        _, reached = jax.lax.associative_scan(_chained, (passing, start), axis=-1)
        weights = stop * reached
        return jnp.where(live, weights, start), weights

    last, weights = jax.lax.scan(align, start, (jnp.moveaxis(stop, 2, 0), jnp.moveaxis(live, 2, 0)))
    return jnp.moveaxis(weights, 0, 2), last


def _chained(
    left: tuple[jax.Array, jax.Array], right: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Two steps y -> k y + b of a linear recurrence as one."""
    return left[0] * right[0], right[0] * left[1] + right[1]
