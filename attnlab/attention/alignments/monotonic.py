"""Monotonic attention: the expected alignment of a reader that goes through the source once (Raffel
et al. 2017).

For each query the reader continues from the key where it stopped for the previous query. It stops
at key j with probability p_ij.

    p_ij = sigmoid(e_ij + r_h)            q_ij = (1 - p_i,j-1) q_i,j-1 + a_i-1,j            a_ij = p_ij q_ij

q_ij is the probability of reaching key j; a_0 is 1 on the first key. Weights sum to at most 1: with
the rest of the probability the reader passes the end. This form divides neither by p nor by
products of 1 - p, so it is stable. It is an associative scan over j and a scan over i. Cost: 10 Tq
Tk FLOPs for each head, Tq steps one after the other, each of log2(Tk). Parameters: H offsets.
Source: C. Raffel, M.-T. Luong, P. Liu, R. Weiss, D. Eck, "Online and Linear-Time Attention by
Enforcing Monotonic Alignments", ICML 2017, equations 9 to 14; Gaussian noise before the sigmoid
(section 2.6), which pushes p towards 0 or 1, is added if the caller passes the random stream
"sample". The paper has one offset r and its own score; the offset here is per head and the score is
whatever the config names. The paper's hard reader for test time is not here: if p is near 0 or 1,
the expectation equals its path.

The alignment of a query depends on that of the previous query: a_i-1 is passed from look to look
(`history`). A query that may see nothing passes on the alignment of its predecessor. The first look
starts from the first key, a_1j = p_1j prod_{l<j} (1 - p_1l).
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment, whole
from attnlab.attention.view import View
from attnlab.errors import at_least
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class Monotonic(Alignment):
    """The expected monotonic alignment over all queries of one look.

    Attributes:
      start: r, the start value of the learned offset of each head; for longer sources it should be
        more negative.
      noise: standard deviation of the noise before the sigmoid, if the random stream "sample" is
        given.
    """

    start: float = -1.0
    noise: float = 1.0

    form = "look"
    sums_to = "at most one"
    looks_at = frozenset({"positions"})
    card = Card(
        "monotonic", 2017, "Raffel et al., Enforcing Monotonic Alignments, ICML 2017", "T^2"
    )

    def setup(self) -> None:
        at_least(0, "alignment monotonic", noise=self.noise)

    def initial_history(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """See `Alignment.initial_history`: a_0 [B,H,Tk], 1 on the first key."""
        return jnp.zeros(shape, dtype).at[..., :1].set(1.0)

    @nn.compact
    def go_on(
        self, scores: jax.Array, mask: jax.Array | None, view: View, history: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Computes the expected monotonic alignments of the queries from stopping probabilities
        sigmoid(score + offset), continuing from the alignment `history` of the query before; noise
        is added to the scores if the random stream "sample" is given. See `Alignment.go_on`.
        """
        offset = self.param("offset", nn.initializers.constant(self.start), (scores.shape[1],))
        energy = widened(scores) + widened(offset)[:, None, None]
        if self.has_rng("sample"):
            energy = energy + self.noise * jax.random.normal(
                self.make_rng("sample"), energy.shape, energy.dtype
            )
        allowed = whole(mask, scores.shape[-1])
        live = jnp.broadcast_to(allowed.any(axis=-1, keepdims=True), (*scores.shape[:-1], 1))
        return expected(jnp.where(allowed, jax.nn.sigmoid(energy), 0.0), live, history)


def expected(stop: jax.Array, live: jax.Array, before: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Computes the expected monotonic alignments of consecutive queries from stopping
    probabilities, and the alignment from which the next query continues.

    Args:
      stop: [B,H,Tq,Tk], p, 0 where masked.
      live: [B,H,Tq,1] bool, queries that may see a key; the others pass on the alignment they got.
      before: [B,H,Tk], the alignment of the query before the first.

    Returns:
      a [B,H,Tq,Tk], and [B,H,Tk] the `before` of the next query.
    """
    if not stop.shape[-1]:
        return stop, before

    def following(
        before: jax.Array, query: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        """Computes the alignment of one query from that of the query before; a query that may see
        no key gets zeros, and passes the earlier alignment on.
        """
        stop, live = query
        on = jnp.concatenate([jnp.zeros_like(stop[..., :1]), 1.0 - stop[..., :-1]], axis=-1)
        _, reached = jax.lax.associative_scan(_chained, (on, before), axis=-1)
        weights = stop * reached
        return jnp.where(live, weights, before), weights

    last, weights = jax.lax.scan(
        following, before, (jnp.moveaxis(stop, 2, 0), jnp.moveaxis(live, 2, 0))
    )
    return jnp.moveaxis(weights, 0, 2), last


def _chained(
    left: tuple[jax.Array, jax.Array], right: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Two steps y -> k y + b of a linear recurrence as one."""
    return left[0] * right[0], right[0] * left[1] + right[1]
