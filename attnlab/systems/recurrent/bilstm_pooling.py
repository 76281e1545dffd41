"""BiLSTM with pooling: a text, or each of two, as the mean, the maximum or the end of its LSTM
states. The plain baseline.

    h_1 .. h_S = BiLSTM(x_1 .. x_S)        v = mean_j h_j,  max_j h_j  or  [last forward ; last backward state]
    logits     = W_2 relu(W_1 v)                                              one text
    logits     = W_2 relu(W_1 [p ; h ; |p - h| ; p * h])                      two, p and h their vectors

Source: A. Conneau, D. Kiela, H. Schwenk, L. Barrault, A. Bordes, "Supervised Learning of Universal
Sentence Representations from Natural Language Inference Data", EMNLP 2017 (arXiv 1705.02364),
section 3, where "max" is the best of them. It has no attention: all states have equal weight,
unlike in `attention_pooling`. Ours: dropout, ReLU in the hidden layer, embeddings that are learned.
A text without a token has the vector 0.

Axis letters: B batch, S and T tokens of the texts, H state width of a direction, C classes.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from attnlab.config.registry import Part, made
from attnlab.layers import CELLS
from attnlab.layers.readers import Read, SentenceReader, Verdict, compared
from attnlab.systems.protocol import Classifier, Side, mean_of


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
