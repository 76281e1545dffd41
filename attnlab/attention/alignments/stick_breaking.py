"""Stick-breaking attention (Tan, Yang, Courville, Panda, Shen 2025): each key takes its share of
what the keys between it and the query have left.

    a_ij = sigmoid(e_ij) prod over j < k < i of (1 - sigmoid(e_ik))            j < i

Going back from the query, key j takes the share sigmoid(e_ij). A row sums to 1 minus what is left,
prod_{k<i} (1 - sigmoid(e_ik)). The query's own token is not attended to, so the first token sees
nothing. All scores 0 give 2^-(i-j): the order of the keys counts without any position scheme. Keys
that may not be seen take nothing. Cost: 14 FLOPs for each pair, of them a sum over the keys behind
it; no parameters. Source: S. Tan, S. Yang, A. Courville, R. Panda, Y. Shen, "Scaling
Stick-Breaking Attention", ICLR 2025 (arXiv 2410.17980), sections 2 and 3; computed in logarithms as
there, log a_ij = log sigmoid(e_ij) - sum_{j<k<i} softplus(e_ik). The released kernel also returns
what is left, for a variant that gives it to the query's own value; this is not here.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment
from attnlab.attention.order import after_each, in_order, out_of_order
from attnlab.attention.view import View
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class StickBreaking(Alignment):
    """a_ij = sigmoid(e_ij) prod_{j<k<i} (1 - sigmoid(e_ik)), j < i; no parameters."""

    sums_to = "at most one"
    looks_at = frozenset({"positions"})
    looks_between = True
    card = Card(
        "stick-breaking", 2025, "Tan et al., Scaling Stick-Breaking Attention, ICLR 2025", "T^2"
    )

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Computes stick-breaking weights over the keys before each query: sigmoid(e_ij) times the
        product of 1 - sigmoid(e_ik) over the allowed keys k between j and i. See
        `Alignment.__call__`.
        """
        scores = widened(scores)
        if not scores.shape[-1]:
            return scores
        before = view.columns < view.rows
        allowed = jnp.broadcast_to(before if mask is None else before & mask, scores.shape)
        scores = jnp.where(allowed, scores, 0.0)
        left, back = in_order(jnp.where(allowed, jax.nn.softplus(scores), 0.0), view.keys)
        nearer = out_of_order(after_each(left), back)
        return jnp.where(allowed, jnp.exp(jax.nn.log_sigmoid(scores) - nearer), 0.0)
