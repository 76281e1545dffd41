"""Sigmoid attention: the weight of a key does not depend on the other keys.

    a_ij = sigmoid(e_ij + b),   b = -log n_i by default, n_i the number of keys that query i may see

The weights do not compete; with b = -log n they sum to about 1 where scores are small, as those of
softmax do. Cost: 2 FLOPs for each pair, no parameters. Source: J. Ramapuram et al., "Theory,
Analysis, and Best Practices for Sigmoid Self-Attention", 2024 (arXiv 2409.04431). There n is the
length of the sequence, also in causal models; here it is the number of keys the query sees, so that
padding does not count, and cached decoding equals the full pass. A fixed `bias`, minus the
logarithm of the training length, is the paper's causal model.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment, whole
from attnlab.attention.view import View
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class Sigmoid(Alignment):
    """a_ij = sigmoid(e_ij + b); no parameters.

    Attributes:
      bias: b; None for -log n_i.
    """

    bias: float | None = None

    form = "elementwise"
    sums_to = "any"
    card = Card("element-wise", 2024, "Ramapuram et al., Sigmoid Self-Attention, 2024", "T^2")

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        allowed = whole(mask, scores.shape[-1])
        scores = widened(scores)
        weights = jax.nn.sigmoid(scores + self.shift(allowed, view, scores.dtype))
        return jnp.where(allowed, weights, 0.0)

    def shift(self, allowed: jax.Array, view: View, dtype: Any) -> jax.Array:
        """b, broadcastable to [B,H,Tq,1], of a mask whose last axis is Tk."""
        if self.bias is not None:
            return jnp.asarray(self.bias, dtype)
        seen = allowed.sum(axis=-1, keepdims=True) if view.seen is None else view.seen
        return -jnp.log(jnp.maximum(seen, 1).astype(dtype))
