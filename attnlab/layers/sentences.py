"""Readers of one or two texts with the same weights, and a classifier of sentence vectors.

Axis letters: B batch, S tokens of a text, E embedding, H state width of a direction, D width of a
sentence vector, C classes.
"""

import functools
from collections.abc import Sequence
from typing import Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.layers.dense import Dense, Dropout
from attnlab.layers.initial import Embed, Initial
from attnlab.layers.lstm import LSTMLayer
from attnlab.layers.stacked import Layer, reader


@flax.struct.dataclass
class Read:
    """A text after reading: states [B,S,2H], valid [B,S], and the last states of both directions
    concatenated, last [B,2H].
    """

    states: jax.Array
    valid: jax.Array
    last: jax.Array


class SentenceReader(nn.Module):
    """Embeddings and a bidirectional LSTM, or another recurrent layer.

    Attributes:
      vocabulary: number of ids.
      embedding: E.
      width: H.
      dropout: rate on the embeddings.
      padding: the id of padding.
      layer: makes a recurrent layer.
      directions: 2, or 1 for one layer of width 2H that reads from the left.
    """

    vocabulary: int
    embedding: int
    width: int
    dropout: float = 0.0
    padding: int = 0
    layer: Layer = LSTMLayer
    directions: Literal[1, 2] = 2

    def setup(self) -> None:
        """Creates embeddings, dropout and a recurrent layer, bidirectional or (`directions` 1) one
        of twice the width.
        """
        normal = nn.initializers.normal(self.embedding**-0.5)
        self.embed = Embed(self.vocabulary, self.embedding, embedding_init=normal)
        self.lstm = reader(self.directions, self.width, Initial(), self.layer)
        self.drop = Dropout(self.dropout)

    def __call__(self, texts: Sequence[jax.Array]) -> list[Read]:
        """Embeds `texts`, a sequence of ids [B,S], S different for each, and runs the recurrent
        layer over all of them in one batch; returns a list with a `Read` (states [B,S,2H], valid
        [B,S], last state [B,2H]) of each.
        """
        rows, longest = len(texts[0]), max(ids.shape[1] for ids in texts)
        paddings = [((0, 0), (0, longest - text.shape[1])) for text in texts]
        pad = functools.partial(jnp.pad, constant_values=self.padding)
        ids = jnp.concatenate(list(map(pad, texts, paddings)))
        valid = ids != self.padding
        states, ends = self.lstm(self.drop(self.embed(ids)), valid)
        last = jnp.concatenate([end.h for end in ends], axis=-1) if self.directions == 2 else ends.h
        cuts = [
            (slice(number * rows, (number + 1) * rows), slice(text.shape[1]))
            for number, text in enumerate(texts)
        ]
        return [Read(states[cut], valid[cut], last[cut[0]]) for cut in cuts]


class Verdict(nn.Module):
    """Features to classes by a hidden layer: relu(dropout(x) W + b), dropout, and a linear layer.

    Attributes:
      hidden: units of the hidden layer.
      classes: C.
      dropout: rate.
    """

    hidden: int
    classes: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, features: jax.Array) -> jax.Array:
        """Features [B,D] to logits [B,C]."""
        drop = Dropout(self.dropout)
        units = jax.nn.relu(Dense(self.hidden, name="first")(drop(features)))
        return Dense(self.classes, name="last")(drop(units))


def compared(first: jax.Array, second: jax.Array) -> jax.Array:
    """Joins two sentence vectors p, h [B,D] to [p ; h ; |p - h| ; p * h], [B,4D] (L. Mou et al., ACL
    2016; A. Conneau et al., EMNLP 2017).
    """
    return jnp.concatenate([first, second, jnp.abs(first - second), first * second], axis=-1)
