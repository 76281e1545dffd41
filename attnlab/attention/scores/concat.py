"""The concat score of Luong et al. 2015, as printed and as their code has it.

    concat           e_ij = v . tanh([q_i ; k_j] W_a)        W_a [2 d, A], the rows of the query first, v [A]
    concat_identity  e_ij = v . tanh(q_i W_a + k_j)          W_a [dq, dk], v [dk]

[q ; k] W_a is q times the upper half of W_a plus k times the lower half. So `concat` equals the
additive score; each half is applied once per query and once per source. Only the initializers
differ: here W_a is Glorot uniform as one matrix and v is N(0, 1 / A); with `additive` attention
starts uniform. Cost: A tanh evaluations for each pair (dk of them for `concat_identity`).
Parameters: (2 d + 1) A; (dq + 1) dk. Source: M.-T. Luong, H. Pham, C. D. Manning, "Effective
Approaches to Attention-based Neural Machine Translation", EMNLP 2015, section 3.1. Their released
code fixes the half of W_a that meets the source to the identity (`concat_identity`); a footnote
names this simplification as the likely reason for the poor perplexities of concat. Neither has
biases. They start everything at U(-0.1, 0.1).
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.scores.additive import Additive
from attnlab.attention.scores.protocol import Score, same_width
from attnlab.errors import at_least
from attnlab.layers.cards import Card
from attnlab.layers.dense import GLOROT, Dense, matmul
from attnlab.layers.precision import widened


class Stacked(nn.Module):
    """W_a [2 d, features] for two inputs of width d that are never concatenated.

    Attributes:
      features: A.
    """

    features: int

    @nn.compact
    def __call__(self, x: jax.Array, half: int) -> jax.Array:
        """x [...,d] times half 0 (the upper) or 1 of the rows of W_a: [...,A]."""
        width = x.shape[-1]
        kernel = self.param("kernel", GLOROT, (2 * width, self.features))
        return matmul(x, kernel[half * width : (half + 1) * width])


class Concat(Additive):
    """e_ij = v . tanh([q_i ; k_j] W_a); both sides equally wide (for others the additive score is
    the same function).

    Attributes:
      hidden: A, the columns of W_a.
    """

    card = Card(
        "perceptron",
        2015,
        "Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015",
        "T^2 A + T D A",
        "T A",
    )

    def setup(self) -> None:
        at_least(1, "score concat", hidden=self.hidden)
        self.w_a = Stacked(self.hidden)
        self.v = self.param("v", nn.initializers.normal(self.hidden**-0.5), (self.hidden,))

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        same_width("concat", q.shape[-1], key_width)
        return self.w_a(q, 0)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`."""
        return self.w_a(k, 1)


class ConcatIdentity(Score):
    """e_ij = v . tanh(q_i W_a + k_j); the two sides may have different widths."""

    card = Card(
        "perceptron",
        2015,
        "Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015 (their released"
        " code)",
        "T^2 D + T D^2",
        "T D",
    )

    def setup(self) -> None:
        self.v = Dense(1, use_bias=False)

    @nn.compact
    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`; A = dk."""
        return Dense(key_width, use_bias=False, name="w_a")(q)

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return widened(self.v(jnp.tanh(q[:, :, :, None, :] + k[:, :, None, :, :]))[..., 0])
