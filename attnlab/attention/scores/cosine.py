"""The content-based score of the Neural Turing Machine (Graves et al. 2014): cosine similarity,
sharpened.

    e_ij = beta q_i . k_j / (|q_i| |k_j|),  beta > 0

Under a softmax a larger beta makes attention sharper; the score stays within [-beta, beta]. |x| is
computed as sqrt(max(x . x, epsilon^2)), so a zero vector has similarity 0 and a finite gradient.
Cost: 2 D FLOPs for each pair, 3 D for each query and key. Parameters: none, 1, or D + 1
(`strength`). Source: A. Graves, G. Wayne, I. Danihelka, "Neural Turing Machines", 2014 (arXiv
1410.5401), section 3.3.1, equations 5 and 6. There the controller emits beta at each step, which is
`strength="emitted"`, beta_i = softplus(q_i w + b), the query standing for the controller's state;
with "learned" it is one number for all queries, softplus(b), with "fixed" a constant.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from attnlab.attention.scores.protocol import Dot, Positive, above_zero, same_width
from attnlab.layers.cards import Card
from attnlab.layers.dense import Dense
from attnlab.layers.precision import widened


class Cosine(Dot):
    """e_ij = beta q_i . k_j / (|q_i| |k_j|); both sides equally wide.

    Attributes:
      beta: the strength, or its start value if it is not fixed ("emitted": the value for a query of
        zeros).
      strength: "learned" (one number), "emitted" (from each query) or "fixed".
      epsilon: norms are at least this.
    """

    beta: float = 5.0
    strength: Literal["learned", "emitted", "fixed"] = "learned"
    epsilon: float = 1e-6

    card = Card("similarity", 2014, "Graves et al., Neural Turing Machines, 2014", "T^2 D", "T D")

    def setup(self) -> None:
        """Checks that `beta` and `epsilon` are above 0 (raises UserError if not), and creates the
        parameters of the strength, none if it is "fixed".
        """
        above_zero("cosine", "beta", self.beta)
        above_zero("cosine", "epsilon", self.epsilon)
        if self.strength != "fixed":
            self.positive = Positive(self.beta)
        if self.strength == "emitted":
            self.emit = Dense(1, use_bias=False)

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`: beta q / |q|."""
        same_width("cosine", q.shape[-1], key_width)
        return (unit(q, self.epsilon) * self.sharpness(q)).astype(q.dtype)

    def of_key(self, k: jax.Array) -> jax.Array:
        """See `Score.of_key`: k / |k|."""
        return unit(k, self.epsilon).astype(k.dtype)

    def sharpness(self, q: jax.Array) -> jax.Array | float:
        """beta for queries [B,H,Tq,D]: a number, [1] or [B,H,Tq,1], float32."""
        if self.strength == "fixed":
            return self.beta
        return self.positive(widened(self.emit(q)) if self.strength == "emitted" else 0.0)


def unit(x: jax.Array, epsilon: float) -> jax.Array:
    """x [...,D] / sqrt(max(x . x, epsilon^2)) in float32: length 1, and at the zero vector zero
    with a finite gradient.
    """
    x = widened(x)
    return x / jnp.sqrt(jnp.maximum((x * x).sum(axis=-1, keepdims=True), epsilon**2))
