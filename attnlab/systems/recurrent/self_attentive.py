"""Structured self-attentive sentence embedding: a text as a matrix, one row for each of r looks at
its LSTM states.

    h_1 .. h_S = BiLSTM(x_1 .. x_S)
    A          = softmax over j of (W_s2 tanh(W_s1 h_j))        [r,S]          any registered mechanism; r hops in the paper
    M          = A h                                            [r,2H]         kept as a matrix, not summed over its rows
    logits     = W_2 relu(W_1 (rows of M side by side))                        one text
    F          = (M_p[i] W_p[i]) * (M_h[i] W_h[i]) for i = 1..r [r,k]          two: row by row, gated by each other
    logits     = W_2 relu(W_1 (rows of F side by side))

The penalty || A A^T - I ||_F^2, which keeps the hops apart, is the loss "hops" of the mechanism;
`auxiliary.hops` in the config is its weight, and r > 1 hops without one are refused. At full
strength from the first step (1.0 in the paper) it pins the hops to arbitrary tokens in small
models: there 0.01.

Source: Z. Lin, M. Feng, C. dos Santos, M. Yu, B. Xiang, B. Zhou, Y. Bengio, "A Structured
Self-attentive Sentence Embedding", ICLR 2017 (arXiv 1703.03130), sections 2 and 4.3. The query of
the mechanism is zeros, since the hops have learned vectors of their own. One that mixes its heads
(multihead) gives M a single row, and with one additive head it is r = 1. Not here: the factored
first layer of the paper's appendix, and pre-trained embeddings. A text without a token has M = 0.

Axis letters: B batch, S and T tokens of the texts, H state width of a direction, r hops, k gated
units of a hop, C classes.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.layers.dense import Dropout
from attnlab.layers.readers import Read
from attnlab.systems.protocol import looked
from attnlab.systems.recurrent.bilstm_pooling import SentenceClassifier


class RowWise(nn.Module):
    """Every row of a matrix by weights of its own: M [B,r,d] to [B,r,k].

    Attributes:
      features: k.
    """

    features: int

    @nn.compact
    def __call__(self, matrix: jax.Array) -> jax.Array:
        """Multiplies each row of M [B,r,d] with its own learned matrix [d,k]: [B,r,k]."""
        glorot = nn.initializers.variance_scaling(1.0, "fan_avg", "uniform", batch_axis=(0,))
        kernel = self.param("kernel", glorot, (*matrix.shape[1:], self.features))
        return jnp.einsum("brd,rdk->brk", matrix, kernel)


class SelfAttentive(SentenceClassifier, kw_only=True):
    """Structured self-attentive embedding (Lin et al. 2017): r weighted means of the LSTM states of
    a text side by side. The fields not named here are those of `SentenceClassifier`.

    Attributes:
      attention: factory of the mechanism; called with the width of the sentence matrix, 2H for each
        of the vectors that it leaves side by side.
      gated: k, units of each hop in the comparison of two texts.
      dropout: rate on the embeddings, the states, and before and after the hidden layer.

    Card: Lin et al., A Structured Self-attentive Sentence Embedding, ICLR 2017.
    """

    attention: Callable[..., Attention]
    gated: int = 32

    parts = {**SentenceClassifier.parts, "attention": MECHANISMS}
    needs = {"attention": Need(role="cross")}

    @property
    def hops(self) -> int:
        """r, the rows of the sentence matrix."""
        return self.attention(width=1, parent=None).side_by_side()

    def setup(self) -> None:
        """Creates what `SentenceClassifier.setup` does, the attention with r hops and the row-wise
        layers for pairs.
        """
        super().setup()
        self.look = self.attention(width=self.hops * 2 * self.width, name="attention")
        self.gate_source, self.gate_target = RowWise(self.gated), RowWise(self.gated)
        self.drop = Dropout(self.dropout)

    def features(self, pooled: list[jax.Array]) -> jax.Array:
        """See `SentenceClassifier.features`; of pairs the product of both matrices, each through a
        row-wise layer.
        """
        rows, *second = pooled
        if second:
            rows = self.gate_source(rows) * self.gate_target(*second)
        return rows.reshape(len(rows), -1)

    def pooled(self, read: Read) -> jax.Array:
        """Computes the sentence matrix M [B,r,2H] of a text that was read: r weighted means of its
        states, one for each hop of the attention.
        """
        states = self.drop(read.states)
        nothing = jnp.zeros((len(states), 1, 2 * self.width), states.dtype)
        means = looked(self, self.look(nothing, states, valid=read.valid))
        return means.reshape(len(states), self.hops, 2 * self.width)
