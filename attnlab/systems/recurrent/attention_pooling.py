"""Attention pooling: a text, or each of two, as a weighted mean of its LSTM states, with a learned
vector for the query.

    h_1 .. h_S = BiLSTM(x_1 .. x_S)        v = attention(u, h)                 any registered mechanism; u is learned
    logits     = W_2 relu(W_1 v)                                               one text
    logits     = W_2 relu(W_1 [p ; h ; |p - h| ; p * h])                       two, p and h their vectors

Source: Z. Yang, D. Yang, C. Dyer, X. He, A. Smola, E. Hovy, "Hierarchical Attention Networks for
Document Classification", NAACL 2016, its attention over words (equations 5-7), e_j = u_w . tanh(h_j
W + b): our additive score, where u W_q is the bias b. There over GRU states and under a second
level for the sentences of a document; the pair of texts and the hidden layer are ours. A text
without a token has the vector 0.

Axis letters: B batch, S and T tokens of the texts, H state width of a direction, C classes.
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
from attnlab.layers.sentences import Read, SentenceReader, Verdict, compared
from attnlab.systems.protocol import Classifier, Side, looked


class AttentionPooling(Classifier):
    """Attention pooling (Yang et al. 2016): the states of a bidirectional LSTM, weighted by
    attention with a learned query.

    Attributes:
      attention: factory of the mechanism; called with the width of the states, 2H.
      embedding: the width of the embeddings of words.
      width: H, the width of the LSTM's state in each direction.
      hidden: units of the layer before the output.
      cell: the recurrent layers: "lstm" (the paper's), "gru" or "tanh".
      directions: 2 for a layer that reads from both ends; 1 for one of width 2H that reads from the
          left.
      dropout: rate on the embeddings, and before and after the hidden layer.

    Card: Yang et al., Hierarchical Attention Networks for Document Classification, NAACL 2016.
    """

    attention: Callable[..., Attention]
    embedding: int = 64
    width: int = 64
    hidden: int = 64
    cell: Part = "lstm"
    directions: Literal[1, 2] = 2
    dropout: float = 0.0

    texts = (1, 2)
    parts = {"attention": MECHANISMS, "cell": CELLS}
    needs = {"attention": Need(role="cross")}

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `System.between`; the first text is looked at before the second."""
        return "hops", "target_in" if name.endswith("_1") else "source"

    def setup(self) -> None:
        """Creates the reader, the attention, its learned query and the hidden layer with the
        classes.
        """
        sizes = self.vocabulary, self.embedding, self.width, self.dropout, self.pad_id
        self.reader = SentenceReader(*sizes, made(CELLS, self.cell), self.directions)
        self.look = self.attention(width=2 * self.width, name="attention")
        normal = nn.initializers.normal((2 * self.width) ** -0.5)
        self.query = self.param("query", normal, (2 * self.width,))
        self.verdict = Verdict(self.hidden, self.classes, self.dropout)

    def __call__(self, source: jax.Array, target: jax.Array | None = None) -> jax.Array:
        """See `Classifier.__call__`."""
        read = self.reader([source] if target is None else [source, target])
        vectors = [self._pooled(text) for text in read]
        return self.verdict(vectors[0] if target is None else compared(*vectors))

    def _pooled(self, read: Read) -> jax.Array:
        """Computes the vector [B,2H] of a text that was read, by attention with the learned query."""
        shape = len(read.states), 1, 2 * self.width
        query = jnp.broadcast_to(self.query, shape).astype(read.states.dtype)
        return looked(self, self.look(query, read.states, valid=read.valid))[:, 0]
