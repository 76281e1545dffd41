"""BERT (Devlin et al. 2019): its choices over the encoder-only Transformer.

    x_0    = dropout(LN(words + positions + types))          types: 0 for [CLS] A [SEP], 1 for B [SEP]
    x      = LN(x + dropout(self-attention(x)));  x = LN(x + dropout(feed-forward(x)))           n times
    token  LN(gelu(x W + b)) E^T + c                         for masked language modelling
    text   tanh(x_first W + b), dropout, a linear layer      for classes
    next   tanh(x_first W + b), a linear layer to 2          does the second text follow the first?

GELU is exact; weights begin as N(0, 0.02^2); nothing is dropped inside feed-forward layers.
Positions (learned), the biases of attention and eps of LN (1e-12) are those that the config sets.
RoBERTa (Liu et al. 2019) differs in its data, not here.

Source: J. Devlin, M.-W. Chang, K. Lee, K. Toutanova, "BERT: Pre-training of Deep Bidirectional
Transformers for Language Understanding", NAACL 2019 (arXiv 1810.04805), sections 3 and A.2, and the
authors' code.

Axis letters: B batch, T length, d model width.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from attnlab.config.registry import Part
from attnlab.layers.block import Placement
from attnlab.layers.dense import Dense
from attnlab.systems.transformers.encoder import Encoder, EncoderClassifier


class Bert(Encoder):
    """BERT with a head for every token (Devlin et al. 2019). The other fields are those of
    `Encoder`.

    Attributes:
      norm, types, normalised_embedding, initial, hidden_dropout, head: those of `Encoder`, as in the
        paper.
      next_sentence: whether there is also a head that tells whether a second text follows the
        first.

    Card: Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, 2019.
    """

    norm: Placement = "post"
    types: int = 2
    normalised_embedding: bool = True
    initial: Part = "bert"
    hidden_dropout: float | None = 0.0
    head: Literal["linear", "tied"] = "tied"
    next_sentence: bool = False

    def setup(self) -> None:
        super().setup()
        if self.next_sentence:
            self.pooler, self.relation = Dense(self.width), Dense(2)

    def read_out(self, states: jax.Array, at: jax.Array | None) -> jax.Array:
        """See `Encoder.read_out`; while parameters are made, so are those of the other head."""
        if self.next_sentence and self.is_initializing():
            self._related(states)
        return super().read_out(states, at)

    def follows(self, tokens: jax.Array, types: jax.Array | None = None) -> jax.Array:
        """Logits [B,2] of pairs in rows: the second text follows the first, or does not."""
        return self._related(self.states(tokens, types))

    def both(
        self, tokens: jax.Array, types: jax.Array | None = None, at: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns what `__call__` and `follows` give of these arguments, from one pass: the loss of
        pretraining adds the two.
        """
        states = self.states(tokens, types)
        return self.read_out(states, at), self._related(states)

    def _related(self, states: jax.Array) -> jax.Array:
        return self.relation(jnp.tanh(self.pooler(states[:, 0])))


class BertClassifier(EncoderClassifier):
    """BERT with a head for texts or pairs (Devlin et al. 2019). The other fields are those of
    `EncoderClassifier`.

    Attributes:
      norm, types, normalised_embedding, initial, hidden_dropout, pooling: those of
        `EncoderClassifier`, as in the paper.

    Card: Devlin et al., BERT: Pre-training of Deep Bidirectional Transformers, 2019.
    """

    norm: Placement = "post"
    types: int = 2
    normalised_embedding: bool = True
    initial: Part = "bert"
    hidden_dropout: float | None = 0.0
    pooling: Literal["mean", "first", "max", "pooler"] = "pooler"
