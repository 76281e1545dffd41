"""Scores that fall with the distance of query and key: Euclidean, and the logarithm of a Gaussian
kernel (RBF).

    euclidean  e_ij = -|q_i - k_j|                   gaussian  e_ij = -|q_i - k_j|^2 / (2 tau),  tau > 0

A softmax over the second gives kernel regression, weights exp(-|q - k|^2 / (2 tau)) over their sum.
As |q|^2 is the same for a whole row it also equals a softmax over (q . k - |k|^2 / 2) / tau, and,
where all keys are equally long, attention with dot products. Differences are computed in float32
and then squared. |q|^2 + |k|^2 - 2 q . k would be a matrix product, but it loses precision if query
and key are close. Cost: 3 D FLOPs for each pair, no matrix product. Parameters: none; 1 for a
learned tau. Source: G. Brauwers, F. Frasincar, "A General Survey on Attention Mechanisms in Deep
Learning", IEEE TKDE 2023 (scores by similarity); E. A. Nadaraya, "On Estimating Regression", 1964,
and G. S. Watson, "Smooth Regression Analysis", 1964 (kernel regression).
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from attnlab.attention.scores.protocol import Positive, Score, above_zero, same_width
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class Euclidean(Score):
    """e_ij = -|q_i - k_j|; both sides equally wide. Where query and key are equal, the gradient
    is 0.
    """

    rotary = True
    card = Card(
        "distance",
        2023,
        "Brauwers, Frasincar, General Survey on Attention Mechanisms, IEEE TKDE 2023",
        "T^2 D",
        "T D",
    )

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        same_width("euclidean", q.shape[-1], key_width)
        return q

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        square = squared_distance(q, k)
        apart = square > 0.0
        return -jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1.0)), 0.0)


class Gaussian(Score):
    """e_ij = -|q_i - k_j|^2 / (2 tau); both sides equally wide.

    Attributes:
      tau: the variance of the kernel, or its start value if it is learned.
      spread: whether tau is "learned" (as softplus of a number) or "fixed".
    """

    tau: float = 1.0
    spread: Literal["learned", "fixed"] = "learned"

    rotary = True
    card = Card(
        "distance",
        1964,
        "Nadaraya, On Estimating Regression, 1964; Watson, Smooth Regression Analysis, 1964",
        "T^2 D",
        "T D",
    )

    def setup(self) -> None:
        above_zero("gaussian", "tau", self.tau)
        if self.spread == "learned":
            self.positive = Positive(self.tau)

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        same_width("gaussian", q.shape[-1], key_width)
        return q

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return squared_distance(q, k) / (
            -2.0 * (self.tau if self.spread == "fixed" else self.positive())
        )


def squared_distance(q: jax.Array, k: jax.Array) -> jax.Array:
    """|q - k|^2 for q [B,H,Tq,D] and k [B,H,Tk,D]: [B,H,Tq,Tk], float32."""
    difference = widened(q)[:, :, :, None, :] - widened(k)[:, :, None, :, :]
    return (difference * difference).sum(axis=-1)
