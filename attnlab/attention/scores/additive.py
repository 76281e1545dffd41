"""The additive score (Bahdanau, Cho, Bengio 2015): e_ij = v . tanh(q_i W_a + k_j U_a).

Cost: `hidden` tanh evaluations for each pair; k U_a is computed once per source. Parameters: (dq +
dk + 1) hidden. Source: D. Bahdanau, K. Cho, Y. Bengio, "Neural Machine Translation by Jointly
Learning to Align and Translate", ICLR 2015 (arXiv 1409.0473), section 3.1 and appendix A.1.2. As
there, no biases; W_a and U_a start at N(0, 0.001^2), v at zero, so that attention starts exactly
uniform.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.scores.protocol import Score
from attnlab.errors import at_least
from attnlab.layers.cards import Card
from attnlab.layers.dense import Dense
from attnlab.layers.precision import inner_dtype


class Additive(Score):
    """e_ij = v . tanh(q_i W_a + k_j U_a); the two sides may have different widths.

    Attributes:
      hidden: A, the width of the hidden layer in which queries and keys are added.
    """

    hidden: int = 256

    card = Card(
        "perceptron",
        2015,
        "Bahdanau et al., Jointly Learning to Align and Translate, ICLR 2015",
        "T^2 A + T D A",
        "T A",
    )

    def setup(self) -> None:
        """Checks that `hidden` is at least 1 (raises UserError if not), and creates the projections
        of query and key and the vector v.
        """
        at_least(1, "score additive", hidden=self.hidden)
        tiny = nn.initializers.normal(0.001)
        self.w_query = Dense(self.hidden, use_bias=False, kernel_init=tiny)
        self.w_key = Dense(self.hidden, use_bias=False, kernel_init=tiny)
        self.v = self.param("v", nn.initializers.zeros, (self.hidden,))

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        return self.w_query(q)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`."""
        return self.w_key(k)

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return perceptron(q, k, self.v)


def perceptron(
    q: jax.Array, k: jax.Array, v: jax.Array, more: jax.Array | float = 0.0
) -> jax.Array:
    """v . tanh(q + k + more) for q [B,H,Tq,A], k [B,H,Tk,A], `more` [B,H,Tq,Tk,A] or a number, and
    v [A]: [B,H,Tq,Tk], summed in float32.
    """
    both = q[:, :, :, None, :] + k[:, :, None, :, :]
    hidden = jnp.tanh(both if isinstance(more, float) else both + more)
    return jnp.matmul(hidden, v, preferred_element_type=inner_dtype(hidden, v))
