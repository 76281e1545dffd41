"""Selective attention (Leviathan, Kalman, Matias 2025): a token can say that later tokens no longer
need an earlier one.

    g_lj = relu(e^0_lj)  for 0 < j < l, else 0            e^0: the scores of the first head
    f_ij = sum over l < i of g_lj                         what the tokens before i take from key j
    a_ij = softmax over j of (e_ij - f_ij)                in every head

The first token of the sequence and a token's own key are never taken from, so the last two tokens
are always there. Scores of the first head that are all below zero give softmax. No parameters. A
query that is padding takes nothing from anybody. f is what is carried from look to look, one number
for each key. Cost: 6 FLOPs for each pair, and a sum over earlier queries of one head. Source: Y.
Leviathan, M. Kalman, Y. Matias, "Selective Attention Improves Transformer", ICLR 2025 (arXiv
2410.02703), section 3. There a key whose f is large may also be dropped from the cache; here all are
kept.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment, softmax
from attnlab.attention.view import View
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class Selective(Alignment):
    """Softmax of e_ij - f_ij, f summed over the earlier queries of the first head; no parameters."""

    form = "look"
    looks_at = frozenset({"positions"})
    looks_between = True
    meeting = True
    card = Card(
        "selective",
        2025,
        "Leviathan et al., Selective Attention Improves Transformer, ICLR 2025",
        "T^2",
    )

    def initial_history(self, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        """See `Alignment.initial_history`: f [B,Tk] of the first query, zeros."""
        return jnp.zeros((shape[0], shape[-1]), dtype)

    def go_on(
        self, scores: jax.Array, mask: jax.Array | None, view: View, history: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Computes softmax weights of the scores less f_ij, the sum over earlier queries of the
        positive scores of the first head for key j; returns the weights and f [B,Tk] of the next
        query. See `Alignment.go_on`.
        """
        scores = widened(scores)
        taken = (view.columns > 0) & (view.columns < view.rows) & present(view)
        if mask is not None:
            taken = taken & mask[:, :1]
        first = scores[:, 0]
        taken = jnp.broadcast_to(taken[:, 0], first.shape)
        gone = jax.nn.relu(jnp.where(taken, first, 0.0))  # g [B,Tq,Tk]
        total = jnp.cumsum(jnp.concatenate([history[:, None], gone], axis=1), axis=1)
        return softmax(scores - total[:, None, :-1], mask), total[:, -1]


def present(view: View) -> jax.Array:
    """Whether the token of a query is real, bool broadcastable to [B,1,Tq,1]: its own key is."""
    if view.valid is None:
        return jnp.ones((1, 1, 1, 1), bool)
    diagonal = (view.columns == view.rows) & view.valid[:, None, None, :]
    return diagonal.any(axis=-1, keepdims=True)
