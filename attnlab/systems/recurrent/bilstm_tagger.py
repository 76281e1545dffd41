"""A bidirectional LSTM with a number of outputs at every token: the plain tagger.

    h_1 .. h_T = BiLSTM(x_1 .. x_T), n layers        logits_t = W dropout(h_t) + b

Source: Z. Huang, W. Xu, K. Yu, "Bidirectional LSTM-CRF Models for Sequence Tagging", 2015 (arXiv
1508.01991), section 2.2, without the CRF and the hand-made features; embeddings are learned.

Axis letters: B batch, T length, H state width of a direction, O outputs of a token.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from attnlab.config.registry import Part, made
from attnlab.errors import at_least
from attnlab.layers import CELLS
from attnlab.layers.dense import Dense, Dropout
from attnlab.layers.initial import Initial
from attnlab.layers.readers import SentenceReader, reader
from attnlab.systems.protocol import TokenClassifier


class BiLSTMTagger(TokenClassifier):
    """Bidirectional LSTM tagger (Huang et al. 2015).

    Attributes:
      embedding: width of the embeddings.
      width: H.
      layers: n.
      cell: the recurrent layers: "lstm", "gru" or "tanh".
      directions: 2, or 1 for layers of width 2H that read from the left.
      dropout: rate on embeddings and on the states of each layer.

    Card: Huang et al., Bidirectional LSTM-CRF Models for Sequence Tagging, 2015.
    """

    embedding: int = 64
    width: int = 64
    layers: int = 1
    cell: Part = "lstm"
    directions: Literal[1, 2] = 2
    dropout: float = 0.0

    parts = {"cell": CELLS}
    reads = frozenset({"at"})

    def setup(self) -> None:
        """Creates the reader, the further recurrent layers and the output layer; raises `UserError`
        for less than one layer.
        """
        at_least(1, "bilstm_tagger", layers=self.layers)
        layer = made(CELLS, self.cell)
        sizes = self.vocabulary, self.embedding, self.width, self.dropout, self.pad_id
        self.reader = SentenceReader(*sizes, layer, self.directions)
        self.above = [
            reader(self.directions, self.width, Initial(), layer) for _ in range(self.layers - 1)
        ]
        self.drop = Dropout(self.dropout)
        self.out = Dense(self.outputs)

    def __call__(
        self,
        tokens: jax.Array,
        types: jax.Array | None = None,
        segments: jax.Array | None = None,
        trees: jax.Array | None = None,
        at: jax.Array | None = None,
    ) -> jax.Array:
        """Computes the outputs [B,T,O] of tokens [B,T], or those of the tokens `at` [B,P] alone,
        [B,P,O]; types, segments and trees are ignored. See `TokenClassifier.__call__`.
        """
        (read,) = self.reader([tokens])
        states = read.states
        for layer in self.above:
            states, _ = layer(self.drop(states), read.valid)
        states = states if at is None else jnp.take_along_axis(states, at[..., None], axis=1)
        return self.out(self.drop(states))
