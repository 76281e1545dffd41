"""Scalable softmax (Nakanishi 2025): scores grow with the logarithm of the number of keys, so that
weights do not flatten as a text grows.

    a_ij = n_i^(s_h e_ij) / sum_k n_i^(s_h e_ik) = softmax over k of (s_h log n_i + b_h) e_ik

n_i is the number of keys that query i may see, s_h a learned number of each head. It starts at
1 / log(length), so that with `length` keys it starts as softmax. b_h is 0 unless `bias` is set: then
it is learned from 0. With one key the factor is b_h, and the weight 1. A key wins as soon as its
score exceeds the others by about 1 / s_h, whatever their number. The factor also scales what a
position scheme adds to the scores. Cost: 6 FLOPs for each pair; parameters H, or 2 H. Source: K. M.
Nakanishi, "Scalable-Softmax Is Superior for Attention", 2025 (arXiv 2501.19399); the factor log n
without a learned number is older (D. Chiang, P. Cholak, 2022). In the paper n is the length of the
sequence; here it is the number of keys a query sees, so padding does not count and cached decoding
equals the full pass.
"""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment, softmax, whole
from attnlab.attention.view import View
from attnlab.errors import at_least
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class ScalableSoftmax(Alignment):
    """Softmax of (s_h log n_i + b_h) e_ij.

    Attributes:
      length: s_h starts at 1 / log(length); the length of the training sequences.
      bias: whether b_h is learned, from 0.
    """

    length: int = 64
    bias: bool = False

    form = "normalised"
    card = Card("soft, scaled", 2025, "Nakanishi, Scalable-Softmax Is Superior, 2025", "T^2")

    def setup(self) -> None:
        at_least(2, "alignment scalable_softmax", length=self.length)

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Computes the masked softmax of (s_h log n + b_h) times the scores, n the number of keys
        that the query may see. See `Alignment.__call__`.
        """
        scores = widened(scores)
        seen = whole(mask, scores.shape[-1]).sum(axis=-1, keepdims=True)
        factor = self.factor(seen, scores.shape[1], scores.dtype)
        if mask is not None:  # what is masked may be huge, and times 0 not a number
            scores = jnp.where(mask, scores, 0.0)
        return softmax(scores * factor, mask)

    @nn.compact
    def factor(self, seen: jax.Array, heads: int, dtype: Any) -> jax.Array:
        """Computes what the scores are multiplied with, s_h log n + b_h (b_h only if `bias`), from
        n = `seen`, the number of keys that each query may see. See `Alignment.factor`.
        """
        start = nn.initializers.constant(1.0 / math.log(self.length))
        grown = jnp.log(jnp.maximum(seen, 1).astype(dtype))
        factor = widened(self.param("s", start, (heads,)))[:, None, None] * grown
        if self.bias:
            bias = widened(self.param("b", nn.initializers.zeros, (heads,)))
            factor = factor + bias[:, None, None]
        return factor
