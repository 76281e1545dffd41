"""Weights that are not learned: controls for learned attention.

    uniform     a_ij = 1 / n_i                        n_i the keys that query i may see
    diagonal    a_ij = 1 / m_i for |j - p_i| <= D      p_i = min(i, n - 1), m_i the keys in the window that it may see

Scores have no effect and get no gradient. n is the number of real keys of the row; with D = 0 every
query takes the key at its own position, or the last key if the source is shorter. One context for
all queries, but learned, is the score `source_only`. Source: uniform weights as a control: S.
Wiegreffe, Y. Pinter, "Attention is not not Explanation", EMNLP 2019; fixed patterns: A. Raganato,
Y. Scherrer, J. Tiedemann, "Fixed Encoder Self-Attention Patterns in Transformer-Based Machine
Translation", Findings of EMNLP 2020. The window is that of local_m (Luong et al. 2015).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.local import LocalM
from attnlab.attention.alignments.protocol import Alignment, softmax
from attnlab.attention.view import View
from attnlab.layers.cards import Card


class Uniform(Alignment):
    """a_ij = 1 / n_i: the mean of the allowed keys; no parameters."""

    form = "fixed"
    card = Card(
        "control", 2019, "Wiegreffe and Pinter, Attention is not not Explanation, EMNLP 2019", "T^2"
    )

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        return softmax(jnp.zeros_like(scores), mask)


class Diagonal(LocalM):
    """a_ij = 1 / m_i in a window around i: a fixed diagonal; no parameters.

    Attributes:
      reach: D, keys on either side of the centre.
    """

    reach: int = 0

    form = "fixed"
    card = Card(
        "control",
        2020,
        "Raganato et al., Fixed Encoder Self-Attention Patterns, Findings of EMNLP 2020",
        "T^2",
    )

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        return super().__call__(jnp.zeros_like(scores), mask, view)
