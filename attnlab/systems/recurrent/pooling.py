"""Classifiers of texts by their vectors: a text, or each of two, is read by a recurrent layer in both
directions, and its states are pooled to a vector: plainly, by attention with a learned query, or to a
matrix by several looks. The class of each has its formula and its source.

Axis letters: B batch, S and T tokens of the texts, H state width of a direction, r hops, k gated
units of a hop, C classes.
"""

from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.config.registry import Part, made
from attnlab.layers import CELLS
from attnlab.layers.dense import Dropout
from attnlab.layers.readers import Read, SentenceReader, Verdict, compared
from attnlab.systems.protocol import Classifier, Side, looked, mean_of


class SentenceClassifier(Classifier, kw_only=True):
    """Base of the classifiers of the vectors of one or two texts, each made of the states of a
    recurrent layer. Not a system by itself.

    Attributes:
      embedding: the width of the embeddings of words.
      width: H, the width of the LSTM's state in each direction.
      hidden: units of the layer before the output.
      cell: the recurrent layers: "lstm" (the papers'), "gru" or "tanh".
      directions: 2 for a layer that reads from both ends; 1 for one of width 2H that reads from the
          left.
      dropout: rate on the embeddings, and before and after the hidden layer.
    """

    embedding: int = 64
    width: int = 64
    hidden: int = 64
    cell: Part = "lstm"
    directions: Literal[1, 2] = 2
    dropout: float = 0.0

    texts = (1, 2)
    parts = {"cell": CELLS}

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `System.between`; the first text is looked at before the second."""
        return "hops", "target_in" if name.endswith("_1") else "source"

    def setup(self) -> None:
        """Creates the reader, and the hidden layer with the classes."""
        sizes = self.vocabulary, self.embedding, self.width, self.dropout, self.pad_id
        self.reader = SentenceReader(*sizes, made(CELLS, self.cell), self.directions)
        self.verdict = Verdict(self.hidden, self.classes, self.dropout)

    def __call__(self, source: jax.Array, target: jax.Array | None = None) -> jax.Array:
        """See `Classifier.__call__`."""
        read = self.reader([source] if target is None else [source, target])
        return self.verdict(self.features([self.pooled(text) for text in read]))

    def pooled(self, read: Read) -> jax.Array:
        """Computes a vector [B,2H], or a matrix [B,r,2H], of a text that was read."""
        raise NotImplementedError

    def features(self, pooled: list[jax.Array]) -> jax.Array:
        """Returns what the hidden layer reads, [B,n], of what `pooled` gave of one or two texts."""
        return compared(*pooled) if len(pooled) == 2 else pooled[0]


class BiLSTMPooling(SentenceClassifier, kw_only=True):
    """BiLSTM pooling (Conneau et al. 2017): the states of a bidirectional LSTM, pooled. The other
    fields are those of `SentenceClassifier`.

    BiLSTM with pooling: a text, or each of two, as the mean, the maximum or the end of its LSTM
    states. The plain baseline.

        h_1 .. h_S = BiLSTM(x_1 .. x_S)        v = mean_j h_j,  max_j h_j  or  [last forward ; last backward state]
        logits     = W_2 relu(W_1 v)                                              one text
        logits     = W_2 relu(W_1 [p ; h ; |p - h| ; p * h])                      two, p and h their vectors

    Source: A. Conneau, D. Kiela, H. Schwenk, L. Barrault, A. Bordes, "Supervised Learning of
    Universal Sentence Representations from Natural Language Inference Data", EMNLP 2017 (arXiv
    1705.02364), section 3, where "max" is the best of them. It has no attention: all states have
    equal weight, unlike in `attention_pooling`. Ours: dropout, ReLU in the hidden layer,
    embeddings that are learned. A text without a token has the vector 0.

    Attributes:
      pooling: "mean", "max" (of each unit by itself), or "last", the state of each direction after
        its last token.

    Card: Conneau et al., Supervised Learning of Universal Sentence Representations, EMNLP 2017.
    """

    pooling: Literal["mean", "max", "last"] = "mean"

    def pooled(self, read: Read) -> jax.Array:
        """Computes the sentence vector [B,2H] of the texts in `read`: the last states of both
        directions, or the mean or maximum of the states of the real tokens (0 for a text without
        any).
        """
        if self.pooling == "last":
            return read.last
        if self.pooling == "mean":
            return mean_of(read.states, read.valid)
        real = read.valid[..., None]
        highest = jnp.where(real, read.states, -1.0).max(axis=1)  # states are above -1
        return jnp.where(real.any(axis=1), highest, 0.0)


class AttentionPooling(SentenceClassifier, kw_only=True):
    """Attention pooling (Yang et al. 2016): the states of a bidirectional LSTM, weighted by
    attention with a learned query. The other fields are those of `SentenceClassifier`.

    Attention pooling: a text, or each of two, as a weighted mean of its LSTM states, with a
    learned vector for the query.

        h_1 .. h_S = BiLSTM(x_1 .. x_S)        v = attention(u, h)                 any registered mechanism; u is learned
        logits     = W_2 relu(W_1 v)                                               one text
        logits     = W_2 relu(W_1 [p ; h ; |p - h| ; p * h])                       two, p and h their vectors

    Source: Z. Yang, D. Yang, C. Dyer, X. He, A. Smola, E. Hovy, "Hierarchical Attention Networks
    for Document Classification", NAACL 2016, its attention over words (equations 5-7), e_j = u_w .
    tanh(h_j W + b): our additive score, where u W_q is the bias b. There over GRU states and under
    a second level for the sentences of a document; the pair of texts and the hidden layer are
    ours. A text without a token has the vector 0.

    Attributes:
      attention: factory of the mechanism; called with the width of the states, 2H.

    Card: Yang et al., Hierarchical Attention Networks for Document Classification, NAACL 2016.
    """

    attention: Callable[..., Attention]

    parts = {**SentenceClassifier.parts, "attention": MECHANISMS}
    needs = {"attention": Need(role="cross")}

    def setup(self) -> None:
        super().setup()
        self.look = self.attention(width=2 * self.width, name="attention")
        normal = nn.initializers.normal((2 * self.width) ** -0.5)
        self.query = self.param("query", normal, (2 * self.width,))

    def pooled(self, read: Read) -> jax.Array:
        """Computes the vector [B,2H] of a text that was read, by attention with the learned query."""
        shape = len(read.states), 1, 2 * self.width
        query = jnp.broadcast_to(self.query, shape).astype(read.states.dtype)
        return looked(self, self.look(query, read.states, valid=read.valid))[:, 0]


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

    Structured self-attentive sentence embedding: a text as a matrix, one row for each of r looks
    at its LSTM states.

        h_1 .. h_S = BiLSTM(x_1 .. x_S)
        A          = softmax over j of (W_s2 tanh(W_s1 h_j))        [r,S]          any registered mechanism; r hops in the paper
        M          = A h                                            [r,2H]         kept as a matrix, not summed over its rows
        logits     = W_2 relu(W_1 (rows of M side by side))                        one text
        F          = (M_p[i] W_p[i]) * (M_h[i] W_h[i]) for i = 1..r [r,k]          two: row by row, gated by each other
        logits     = W_2 relu(W_1 (rows of F side by side))

    The penalty || A A^T - I ||_F^2, which keeps the hops apart, is the loss "hops" of the
    mechanism; `auxiliary.hops` in the config is its weight, and r > 1 hops without one are
    refused. At full strength from the first step (1.0 in the paper) it pins the hops to arbitrary
    tokens in small models: there 0.01.

    Source: Z. Lin, M. Feng, C. dos Santos, M. Yu, B. Xiang, B. Zhou, Y. Bengio, "A Structured
    Self-attentive Sentence Embedding", ICLR 2017 (arXiv 1703.03130), sections 2 and 4.3. The query
    of the mechanism is zeros, since the hops have learned vectors of their own. One that mixes its
    heads (multihead) gives M a single row, and with one additive head it is r = 1. Not here: the
    factored first layer of the paper's appendix, and pre-trained embeddings. A text without a
    token has M = 0.

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
