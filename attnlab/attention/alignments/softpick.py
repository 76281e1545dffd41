"""Softpick, a rectified softmax (Zuhri, Fuadi, Aji 2025): keys with a score below zero get exactly
nothing, and a query may attend to nothing at all.

    a_ij = relu(exp(e_ij) - 1) / sum over the allowed k of |exp(e_ik) - 1|

A key with a negative score stays in the denominator, so it has a gradient although it weighs
nothing. Rows sum to at most one. For large scores it is softmax; unlike softmax it changes if a
constant is added to all scores. With many keys below zero the denominator grows with their number,
so weights fall as a text grows. Cost: 7 FLOPs for each pair, no parameters. Source: Z. M. K. Zuhri,
E. H. Fuadi, A. F. Aji, "Softpick: No Attention Sink, No Massive Activations with Rectified
Softmax", 2025 (arXiv 2504.20966). The paper adds an epsilon to the denominator; here a row whose
scores are all exactly zero is zeros. exp(e) - 1 is computed without cancellation, and without
overflow by a largest score of at least 0; the released code takes the largest score alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment
from attnlab.attention.view import View
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class Softpick(Alignment):
    """a_ij = relu(exp(e_ij) - 1) / sum_k |exp(e_ik) - 1|; no parameters."""

    sums_to = "at most one"
    card = Card("soft, rectified", 2025, "Zuhri et al., Softpick, 2025", "T^2")

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Computes weights relu(exp(e_j) - 1) / sum_k |exp(e_k) - 1| over the allowed keys, 0 where
        the score is not positive. See `Alignment.__call__`.
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
