"""Relatives of softmax that see one row of scores: with a factor that grows with the number of keys,
rectified, over the best keys alone, element by element, and of no score at all.

The class of each has its formula, cost and source. Axis letters: see `protocol`.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import LOW, Alignment, full_mask, softmax
from attnlab.attention.view import View
from attnlab.errors import at_least
from attnlab.layers.dense import widened


class ScalableSoftmax(Alignment):
    """Softmax of (s_h log n_i + b_h) e_ij.

        a_ij = n_i^(s_h e_ij) / sum_k n_i^(s_h e_ik) = softmax over k of (s_h log n_i + b_h) e_ik

    n_i is the number of keys that query i may see, s_h a learned number of each head. It starts at
    1 / log(length), so that with `length` keys it starts as softmax. b_h is 0 unless `bias` is set:
    then it is learned from 0. With one key the factor is b_h, and the weight 1. A key wins as soon
    as its score exceeds the others by about 1 / s_h, whatever their number. The factor also scales
    what a position scheme adds to the scores. Cost: 6 FLOPs for each pair; parameters H, or 2 H.
    Source: K. M. Nakanishi, "Scalable-Softmax Is Superior for Attention", 2025 (arXiv 2501.19399);
    the factor log n without a learned number is older (D. Chiang, P. Cholak, 2022). In the paper n
    is the length of the sequence; here it is the number of keys a query sees, so padding does not
    count and cached decoding equals the full pass.

    Attributes:
      length: s_h starts at 1 / log(length); the length of the training sequences.
      bias: whether b_h is learned, from 0.

    Card: soft, scaled; Nakanishi, Scalable-Softmax Is Superior, 2025; time T^2.
    """

    length: int = 64
    bias: bool = False

    form = "normalised"

    def setup(self) -> None:
        at_least(2, "alignment scalable_softmax", length=self.length)

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Computes the masked softmax [B,H,Tq,Tk] of the scores times s_h log n + b_h, n the number
        of keys that the query may see, s_h and (if `bias` is set) b_h learned for each head. See
        `Alignment.__call__`.
        """
        scores = widened(scores)
        counts = full_mask(mask, scores.shape[-1]).sum(axis=-1, keepdims=True)
        factor = self.factor(counts, scores.shape[1], scores.dtype)
        if mask is not None:  # what is masked may be huge, and times 0 not a number
            scores = jnp.where(mask, scores, 0.0)
        return softmax(scores * factor, mask)

    @nn.compact
    def factor(self, counts: jax.Array, heads: int, dtype: Any) -> jax.Array:
        """Computes the factor s_h log n + b_h of the scores of each query, [B or 1,H,Tq,1], from n
        = `counts`, the number of keys that it may see; s_h and (if the field `bias` is set) b_h are
        learned for each of the `heads`. See `Alignment.factor`.
        """
        start = nn.initializers.constant(1.0 / math.log(self.length))
        log_counts = jnp.log(jnp.maximum(counts, 1).astype(dtype))
        factor = widened(self.param("s", start, (heads,)))[:, None, None] * log_counts
        if self.bias:
            bias = widened(self.param("b", nn.initializers.zeros, (heads,)))
            factor = factor + bias[:, None, None]
        return factor


class Softpick(Alignment):
    """a_ij = relu(exp(e_ij) - 1) / sum_k |exp(e_ik) - 1|; no parameters.

        a_ij = relu(exp(e_ij) - 1) / sum over the allowed k of |exp(e_ik) - 1|

    A key with a negative score stays in the denominator, so it has a gradient although it weighs
    nothing. Rows sum to at most one. For large scores it is softmax; unlike softmax it changes if a
    constant is added to all scores. With many keys below zero the denominator grows with their
    number, so weights fall as a text grows. Cost: 7 FLOPs for each pair, no parameters. Source: Z.
    M. K. Zuhri, E. H. Fuadi, A. F. Aji, "Softpick: No Attention Sink, No Massive Activations with
    Rectified Softmax", 2025 (arXiv 2504.20966). The paper adds an epsilon to the denominator; here
    a row whose scores are all exactly zero is zeros. exp(e) - 1 is computed without cancellation,
    and without overflow by a largest score of at least 0; the released code takes the largest score
    alone.

    Card: soft, rectified; Zuhri et al., Softpick, 2025; time T^2.
    """

    sums_to = "at most one"

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Computes the weights [B,H,Tq,Tk] relu(exp(e_j) - 1) / sum over allowed k of |exp(e_k) -
        1| from the scores e; a key that is masked or whose score is not positive gets 0. See
        `Alignment.__call__`.
        """
        scores = widened(scores)
        if not scores.shape[-1]:
            return scores
        allowed = jnp.ones((), bool) if mask is None else mask
        scores = jnp.where(allowed, scores, 0.0)
        above = jnp.maximum(scores, 0.0)
        top = jax.lax.stop_gradient(above.max(axis=-1, keepdims=True))
        # |exp(e) - 1| exp(-top), of masked keys 0
        size = jnp.exp(above - top) * -jnp.expm1(-jnp.abs(scores))
        total = size.sum(axis=-1, keepdims=True)
        return jnp.where(scores > 0.0, size, 0.0) / jnp.where(total == 0.0, 1.0, total)


class TopK(Alignment):
    """Softmax over the `keep` best keys; no parameters.

        I_i = the k allowed keys with the largest e_ij        a_ij = softmax over j in I_i of e_ij, else 0

    Of equal scores the earlier key is taken, so that cached decoding chooses as the full pass does.
    k of at least the number of keys is softmax, k = 1 the alignment hard. The choice has no
    gradient; keys that are not chosen get none. All scores are computed, so nothing is saved: the
    mechanism `lightning_indexer` chooses by cheaper ones. Cost: 5 FLOPs for each pair and those of
    a sort; no parameters. Source: A. Gupta, G. Dar, S. Goodman, D. Ciprut, J. Berant,
    "Memory-efficient Transformers via Top-k Attention", 2021 (arXiv 2106.06899).

    Attributes:
      keep: k.

    Card: sparse; Gupta et al., Memory-efficient Transformers via Top-k Attention, 2021;
    time T^2 log T.
    """

    keep: int = 16

    def setup(self) -> None:
        at_least(1, "alignment top_k", keep=self.keep)

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Computes softmax weights [B,H,Tq,Tk] over the `keep` allowed keys with the largest scores
        of each query (the first among equal scores); all other keys get 0. See
        `Alignment.__call__`.
        """
        scores = widened(scores)
        if not scores.shape[-1]:
            return scores
        allowed = jnp.ones((), bool) if mask is None else mask
        return softmax(scores, largest(jnp.where(allowed, scores, LOW), self.keep) & allowed)


def largest(x: jax.Array, count: int) -> jax.Array:
    """Returns a bool mask, shaped like x, of the `count` largest numbers along the last axis, the
    first ones among equal numbers, or True everywhere if the axis has at most `count` entries.
    """
    if count >= x.shape[-1]:
        return jnp.ones(x.shape, bool)
    least = jax.lax.top_k(jax.lax.stop_gradient(x), count)[0][..., -1:]
    above, level = x > least, x == least
    room = count - above.sum(axis=-1, keepdims=True)
    return above | (level & (jnp.cumsum(level, axis=-1) <= room))


class Sigmoid(Alignment):
    """a_ij = sigmoid(e_ij + b); no parameters.

        a_ij = sigmoid(e_ij + b),   b = -log n_i by default, n_i the number of keys that query i may see

    The weights do not compete; with b = -log n they sum to about 1 where scores are small, as those
    of softmax do. Cost: 2 FLOPs for each pair, no parameters. Source: J. Ramapuram et al., "Theory,
    Analysis, and Best Practices for Sigmoid Self-Attention", 2024 (arXiv 2409.04431). There n is
    the length of the sequence, also in causal models; here it is the number of keys the query sees,
    so that padding does not count, and cached decoding equals the full pass. A fixed `bias`, minus
    the logarithm of the training length, is the paper's causal model.

    Attributes:
      bias: b; None for -log n_i.

    Card: element-wise; Ramapuram et al., Sigmoid Self-Attention, 2024; time T^2.
    """

    bias: float | None = None

    form = "elementwise"
    sums_to = "any"

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        allowed = full_mask(mask, scores.shape[-1])
        scores = widened(scores)
        weights = jax.nn.sigmoid(scores + self.shift(allowed, view, scores.dtype))
        return jnp.where(allowed, weights, 0.0)

    def shift(self, allowed: jax.Array, view: View, dtype: Any) -> jax.Array:
        """Returns b, broadcastable to [B,H,Tq,1]: the field `bias`, or -log n with n the keys
        `allowed` [...,Tk] (or `View.key_counts` of the view).
        """
        if self.bias is not None:
            return jnp.asarray(self.bias, dtype)
        counts = allowed.sum(axis=-1, keepdims=True) if view.key_counts is None else view.key_counts
        return -jnp.log(jnp.maximum(counts, 1).astype(dtype))


class Uniform(Alignment):
    """a_ij = 1 / n_i: the mean of the allowed keys; no parameters.

        a_ij = 1 / n_i          n_i the keys that query i may see

    A control for learned attention: scores have no effect and get no gradient. One context for all
    queries, but learned, is the score `source_only`. Cost: that of softmax.

    Card: control; Wiegreffe and Pinter, Attention is not not Explanation, EMNLP 2019; time T^2.
    """

    form = "fixed"

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        return softmax(jnp.zeros_like(scores), mask)
