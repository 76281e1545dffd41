"""Softmax over the k largest scores of a row (Gupta et al. 2021).

    I_i = the k allowed keys with the largest e_ij        a_ij = softmax over j in I_i of e_ij, else 0

Of equal scores the earlier key is taken, so that cached decoding chooses as the full pass does. k of
at least the number of keys is softmax, k = 1 the alignment hard. The choice has no gradient; keys
that are not chosen get none. All scores are computed, so nothing is saved: the mechanism
`lightning_indexer` chooses by cheaper ones. Cost: 5 FLOPs for each pair and those of a sort; no
parameters. Source: A. Gupta, G. Dar, S. Goodman, D. Ciprut, J. Berant, "Memory-efficient
Transformers via Top-k Attention", 2021 (arXiv 2106.06899).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import LOW, Alignment, softmax
from attnlab.attention.view import View
from attnlab.errors import at_least
from attnlab.layers.cards import Card
from attnlab.layers.precision import widened


class TopK(Alignment):
    """Softmax over the `keep` best keys; no parameters.

    Attributes:
      keep: k.
    """

    keep: int = 16

    card = Card(
        "sparse",
        2021,
        "Gupta et al., Memory-efficient Transformers via Top-k Attention, 2021",
        "T^2 log T",
    )

    def setup(self) -> None:
        at_least(1, "alignment top_k", keep=self.keep)

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Computes the softmax over the `keep` allowed keys with the largest scores; other keys get
        0. See `Alignment.__call__`.
        """
        scores = widened(scores)
        if not scores.shape[-1]:
            return scores
        allowed = jnp.ones((), bool) if mask is None else mask
        return softmax(scores, largest(jnp.where(allowed, scores, LOW), self.keep) & allowed)


def largest(x: jax.Array, count: int) -> jax.Array:
    """Returns a bool mask, shaped like x, of the `count` largest numbers along the last axis, of
    equal ones the first; True everywhere if there are no more than `count`.
    """
    if count >= x.shape[-1]:
        return jnp.ones(x.shape, bool)
    least = jax.lax.top_k(jax.lax.stop_gradient(x), count)[0][..., -1:]
    above, level = x > least, x == least
    room = count - above.sum(axis=-1, keepdims=True)
    return above | (level & (jnp.cumsum(level, axis=-1) <= room))
