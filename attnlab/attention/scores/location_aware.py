"""The location-aware score (Chorowski et al. 2015): the additive score with the weights of the
previous query.

    f_i  = F * a_{i-1}                                                n filters of w = 2 r + 1 keys; a_0 = 0
    e_ij = v . tanh(q_i W_a + k_j U_a + f_ij U_f + b)

a_{i-1} are the weights of the query before, of the same head, by whatever alignment the mechanism
has. Queries are computed one by one. Cost: 2 w n + 2 n A FLOPs for each pair beside those of the
additive score. Parameters: (dq + dk + n + 2) A + w n. Source: J. Chorowski, D. Bahdanau, D.
Serdyuk, K. Cho, Y. Bengio, "Attention-Based Models for Speech Recognition", NeurIPS 2015 (arXiv
1506.07503), section 2.1, equations 8 and 9; they have 10 filters of 201 frames of speech, here the
filters are as wide as words need. The paper leaves the start open: here W_a, U_a and U_f start at
N(0, 0.001^2), F at N(0, 1 / w), b and v at zero, so that attention starts uniform. The paper's
sharpening of weights is not here; the cosine score has it.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.scores.additive import Additive, perceptron
from attnlab.errors import at_least
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class LocationAware(Additive):
    """e_ij = v . tanh(q_i W_a + k_j U_a + f_ij U_f + b), f_i the last weights through filters.

    Attributes:
      hidden: width A of the alignment model.
      filters: n.
      reach: r, keys on either side that a filter sees.
    """

    filters: int = 10
    reach: int = 10

    looks_back = True
    lengths = {"reach": "within"}
    card = Card(
        "perceptron",
        2015,
        "Chorowski et al., Attention-Based Models for Speech Recognition, NeurIPS 2015",
        "T^2 (A n + n w) + T D A",
        "T A",
    )

    def setup(self) -> None:
        """Checks `filters` and `reach` (raises UserError if they are too small), and creates the
        parameters of the additive score, the convolution filter, its projection and a bias.
        """
        super().setup()
        at_least(1, "score location_aware", filters=self.filters)
        at_least(0, "score location_aware", reach=self.reach)
        width, tiny = 2 * self.reach + 1, nn.initializers.normal(0.001)
        self.filter = self.param(
            "filter", nn.initializers.normal(width**-0.5), (width, self.filters)
        )
        self.of_filter = self.param("of_filter", tiny, (self.filters, self.hidden))
        self.bias = self.param("bias", nn.initializers.zeros, (self.hidden,))

    def pairs(
        self, q: jax.Array, k: jax.Array, j: jax.Array, past: jax.Array | None = None
    ) -> jax.Array:
        """Computes the additive score of queries and keys, with the convolved weights `past`
        [B,H,Tq,Tk] of the query before inside the tanh; without them if `past` is None. See
        `Score.pairs`.
        """
        if past is None:
            return perceptron(q + self.bias, k, self.v)
        beside = [(0, 0)] * (past.ndim - 1) + [(self.reach, self.reach)]
        window = jnp.arange(past.shape[-1])[:, None] + jnp.arange(2 * self.reach + 1)
        seen = jnp.pad(past, beside)[..., window]  # [B,H,Tq,Tk,w]
        convolved = (seen @ widened(self.filter)) @ widened(self.of_filter)
        return perceptron(q + self.bias, k, self.v, convolved.astype(q.dtype))

    def after(self, past: jax.Array, weights: jax.Array, keys: jax.Array) -> jax.Array:
        """See `Score.after`: the weights themselves."""
        return weights
