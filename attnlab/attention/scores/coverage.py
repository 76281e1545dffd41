"""The coverage score (Tu et al. 2016): the additive score with the sum of the weights that each key
got from earlier queries.

    C_ij = C_{i-1,j} + a_{i-1,j} / P_j,   C_1j = 0                    P_j = N sigmoid(k_j . u_f), how often key j should be looked at
    e_ij = v . tanh(q_i W_a + k_j U_a + C_ij v_c)

That is the paper's linguistic coverage with fertility, N its `fertility` (2 in the paper); with
fertility=0 P_j = 1, the coverage of See et al. 2017. a_{i-1} are the weights of the query before,
of the same head, by whatever alignment the mechanism has. Queries are computed one by one. Cost: 2
A + 1 FLOPs for each pair beside those of the additive score. Parameters: (dq + dk + 2) A + dk.
Source: Z. Tu, Z. Lu, Y. Liu, X. Liu, H. Li, "Modeling Coverage for Neural Machine Translation", ACL
2016 (arXiv 1601.04811), section 3.1; A. See, P. J. Liu, C. D. Manning, "Get To The Point", ACL
2017. Its coverage by a neural network is not here. Starts as the additive score does, v_c at N(0,
0.001^2) and u_f at zero.
"""

from __future__ import annotations

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.scores.additive import Additive, perceptron
from attnlab.errors import UserError
from attnlab.layers.cards import Card
from attnlab.layers.dense import matmul
from attnlab.layers.precision import widened

LEAST = -30.0  # bound of k . u_f: no division by zero for a key that needs no attention


class Coverage(Additive):
    """e_ij = v . tanh(q_i W_a + k_j U_a + C_ij v_c), C_i the weights so far over the fertility.

    Attributes:
      hidden: width A of the alignment model.
      fertility: N, the largest sum of weights for one key; 0 means 1 for every key.
    """

    fertility: float = 2.0

    looks_back = True
    card = Card(
        "perceptron",
        2016,
        "Tu et al., Modeling Coverage for Neural Machine Translation, ACL 2016",
        "T^2 A + T D A",
        "T A",
    )

    def setup(self) -> None:
        super().setup()
        if not 0.0 <= self.fertility < math.inf:
            raise UserError(f"score coverage: fertility={self.fertility}, must be at least 0")
        self.of_covered = self.param("of_covered", nn.initializers.normal(0.001), (self.hidden,))

    @nn.compact
    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`; with fertility the last number is k . u_f."""
        if not self.fertility:
            return self.w_key(k)
        how_often = self.param("fertile", nn.initializers.zeros, (k.shape[-1], 1))
        return jnp.concatenate([self.w_key(k), matmul(k, how_often)], axis=-1)

    def pairs(
        self, q: jax.Array, k: jax.Array, j: jax.Array, past: jax.Array | None = None
    ) -> jax.Array:
        """See `Score.pairs`; `past` [B,H,Tq,Tk] is the coverage before each query, None for zero."""
        if past is None:
            return perceptron(q, k[..., : self.hidden], self.v)
        coverage = past[..., None] * widened(self.of_covered)
        return perceptron(q, k[..., : self.hidden], self.v, coverage.astype(q.dtype))

    def after(self, past: jax.Array, weights: jax.Array, keys: jax.Array) -> jax.Array:
        """Adds the weights of a query to the coverage C so far (`past`), divided by the fertility
        of each key if there is one, and returns the new C. See `Score.after`.
        """
        if not self.fertility:
            return past + weights
        fertile = jnp.maximum(widened(keys[..., self.hidden]), LEAST)
        often = self.fertility * jax.nn.sigmoid(fertile)  # [B,K,Tk]
        return past + weights / jnp.repeat(often, past.shape[1] // often.shape[1], axis=1)
