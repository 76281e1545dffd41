"""Inner products: e_ij = q_i . k_j (Luong et al. 2015) and e_ij = q_i . k_j / sqrt(D) (Vaswani et
al. 2017).

Cost: 2 D FLOPs for each pair, no parameters. If the components have unit variance, the product has
variance D; dividing by sqrt(D) makes it 1. Source: M.-T. Luong, H. Pham, C. D. Manning, "Effective
Approaches to Attention-based Neural Machine Translation", EMNLP 2015, section 3.1; A. Vaswani et
al., "Attention Is All You Need", NeurIPS 2017, equation 1.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from attnlab.attention.cards import Card
from attnlab.attention.scores.protocol import Score, same_width
from attnlab.errors import UserError
from attnlab.layers.precision import inner_dtype


class Dot(Score):
    """e_ij = q_i . k_j; both sides equally wide."""

    product = True
    rotary = True
    card = Card(
        "product",
        2015,
        "Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015",
        "T^2 D",
        "T D",
    )

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        same_width(type(self).__name__, q.shape[-1], key_width)
        return q

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return inner(q, k)


class ScaledDot(Dot):
    """e_ij = q_i . k_j / sqrt(D), D the width of both.

    Attributes:
      over: what stands below the root in the place of D; 0 for D. Gemma 2 and 3 have a number of
        their own there (`query_pre_attn_scalar` in their configs).
    """

    over: float = 0.0

    card = Card(
        "product", 2017, "Vaswani et al., Attention Is All You Need, NeurIPS 2017", "T^2 D", "T D"
    )

    def scale(self, width: int) -> float:
        """1 / sqrt(D), or what is set."""
        if not 0.0 <= self.over < math.inf:
            raise UserError(f"score scaled_dot: over={self.over}, must be a number of at least 0")
        return float((self.over or width) ** -0.5)


def inner(q: jax.Array, k: jax.Array) -> jax.Array:
    """q [B,H,Tq,A] and k [B,H,Tk,A] to q k^T [B,H,Tq,Tk], summed in float32."""
    return jnp.einsum("bhqa,bhka->bhqk", q, k, preferred_element_type=inner_dtype(q, k))
