"""A score without a query: e_ij = v . tanh(k_j U_a), so every query gets the same context.

It is the additive score without its query: one learned summary of the source. As a control it lies
between a fixed vector and a new context at every step. With one learned query instead of a state it
is the attention of hierarchical attention networks. Cost: `hidden` tanh evaluations for each key.
Parameters: (dk + 1) hidden; U_a starts Glorot uniform, v at zero, so that attention starts uniform.
Source: Z. Yang et al., "Hierarchical Attention Networks for Document Classification", NAACL 2016,
equations 5 and 6, without the bias.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.scores.protocol import Score
from attnlab.errors import at_least
from attnlab.layers.cards import Card
from attnlab.layers.dense import Dense
from attnlab.layers.precision import widened


class SourceOnly(Score):
    """e_ij = v . tanh(k_j U_a), the same for every query.

    Attributes:
      hidden: width A of the alignment model.
    """

    hidden: int = 64

    card = Card(
        "control",
        2016,
        "Yang et al., Hierarchical Attention Networks for Document Classification, NAACL 2016",
        "T^2 + T D A",
        "T",
    )

    def setup(self) -> None:
        at_least(1, "score source_only", hidden=self.hidden)
        self.w_key = Dense(self.hidden, use_bias=False)
        self.v = self.param("v", nn.initializers.zeros, (self.hidden,))

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`: zeros [B,H,Tq,1], a query is not used."""
        return jnp.zeros((*q.shape[:-1], 1), q.dtype)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`: the score itself, [B,K,Tk,1]."""
        raised = jnp.tanh(widened(self.w_key(k)))
        return (raised @ widened(self.v))[..., None].astype(k.dtype)

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return widened(q) + widened(k).swapaxes(-1, -2)
