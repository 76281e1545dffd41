"""Readers of texts made of recurrent layers, LSTMs by default: in one or two directions, in stacks, with
embeddings for one or two texts with the same weights; and a classifier of the sentence vectors they give.

Axis letters: B batch, T time or S tokens of a text, E width of the input or embedding, H state width (of a
direction), L layers, D width of a sentence vector, C classes.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.layers.dense import Dense, Dropout
from attnlab.layers.initial import Embed, Initial
from attnlab.layers.lstm import LSTMLayer

States = tuple[Any, ...]
Layer = Callable[..., Any]  # a class of `recurrent.Recurrent`, or a factory of one


class BidirectionalLSTM(nn.Module):
    """Two LSTMs, one in each direction, with concatenated outputs: x [B,T,E] to [B,T,2H].

    Attributes:
      width: H, of each direction.
      initial: how its weights start.
      layer: makes the layer of a direction.
    """

    width: int
    initial: Initial = Initial()
    layer: Layer = LSTMLayer

    def setup(self) -> None:
        self.forward = self.layer(width=self.width, initial=self.initial)
        self.backward = self.layer(width=self.width, initial=self.initial)

    def __call__(
        self, x: jax.Array, valid: jax.Array | None = None
    ) -> tuple[jax.Array, tuple[Any, Any]]:
        """x [B,T,E] and valid [B,T] to the outputs [B,T,2H], forward half first, and the states
        after the last and the first token.
        """
        forward, at_end = self.forward(x, valid)
        backward, at_beginning = self.backward(x, valid, reverse=True)
        return jnp.concatenate([forward, backward], axis=-1), (at_end, at_beginning)


def reader(directions: int, width: int, initial: Initial, layer: Layer) -> Any:
    """A layer with outputs of 2H, H its `width`: bidirectional, or (`directions` 1) one of width 2H
    that reads from the left.
    """
    if directions == 2:
        return BidirectionalLSTM(width, initial, layer)
    return layer(width=2 * width, initial=initial)


class LSTMStack(nn.Module):
    """L LSTM layers; each reads the output of the one below.

        x^0 = x        y^l = LSTM^l(dropout(x^{l-1}))        x^l = y^l, or y^l + x^{l-1} from layer `residual` on

    The state of each layer is that of its LSTM, without the residual sum. With L = 0 the stack is
    the identity. Dropout and sums as in W. Zaremba, I. Sutskever, O. Vinyals, "Recurrent Neural
    Network Regularization", 2014 (no connection from step to step is dropped), and Y. Wu et al.,
    "Google's Neural Machine Translation System", 2016.

    With two directions every layer is two of width H / 2, with concatenated outputs and states; the
    first state is then zero, and there is no `advance`.

    Attributes:
      width: H of every layer.
      layers: L.
      dropout: rate on the input of every layer.
      residual: the first layer whose input is added to its output, 2 for the second; 0 for none.
      initial: how the weights start.
      kind: makes a layer.
      directions: 1, or 2 for layers that read both ways.
    """

    width: int
    layers: int = 1
    dropout: float = 0.0
    residual: int = 0
    initial: Initial = Initial()
    kind: Layer = LSTMLayer
    directions: Literal[1, 2] = 1

    def setup(self) -> None:
        """Creates the layers, bidirectional ones of half the width for `directions` 2, and dropout;
        raises `UserError` for an odd width then, ValueError for `residual` 1.
        """
        if self.residual == 1:
            raise ValueError(
                "the lowest layer's input is not added to its output: residual starts at 2"
            )
        if self.directions == 2:
            halves(self.width)
            make: Layer = functools.partial(BidirectionalLSTM, self.width // 2, layer=self.kind)
        else:
            make = functools.partial(self.kind, width=self.width)
        self.layer: list[Any] = [make(initial=self.initial) for _ in range(self.layers)]
        self.drop = Dropout(self.dropout)

    def __call__(
        self,
        x: jax.Array,
        valid: jax.Array | None = None,
        start: States | None = None,
        reverse: bool = False,
    ) -> tuple[jax.Array, States]:
        """Runs all layers over x [B,T,E] from their states `start` (None: zeros), from right to
        left if `reverse`, skipping tokens not `valid` [B,T] (None: all are); returns the outputs
        [B,T,H] and a tuple of each layer's last state; two directions ignore `start` and `reverse`.
        """
        last = []
        for number, layer in enumerate(self.layer):
            if self.directions == 2:
                y, ends = layer(self.drop(x), valid)
                state = side_by_side(*ends)
            else:
                first = None if start is None else start[number]
                y, state = layer(self.drop(x), valid, first, reverse)
            x = self._summed(number, x, y)
            last.append(state)
        return x, tuple(last)

    def contribute(self, x: jax.Array) -> jax.Array:
        """The contribution of inputs [...,E] to the gates of the lowest layer, [...,4H], for all
        steps at once.
        """
        return self.layer[0].of_input(self.drop(x))

    def advance(self, states: States, contribution: jax.Array) -> tuple[jax.Array, States]:
        """Computes one step of all layers from a tuple of their `states` and the summed
        `contribution` to the gates of the lowest layer ([B,4H] of LSTMs); returns the output [B,H]
        of the highest layer and the tuple of the next states.
        """
        updated = [self.layer[0].cell(states[0], contribution)]
        x = updated[0].h
        for number, layer in enumerate(self.layer[1:], start=1):
            state = layer.step(states[number], self.drop(x))
            x = self._summed(number, x, state.h)
            updated.append(state)
        return x, tuple(updated)

    def _summed(self, number: int, x: jax.Array, y: jax.Array) -> jax.Array:
        return y + x if 0 < self.residual <= number + 1 else y


def side_by_side(forward: Any, backward: Any) -> Any:
    """Joins the states of two directions, of arrays [B,H/2], to one of arrays [B,H]."""
    return jax.tree.map(lambda *states: jnp.concatenate(states, axis=-1), forward, backward)


def halves(width: int) -> None:
    """Raises `UserError` if the width is odd, so that two directions cannot share it."""
    if width % 2:
        raise UserError(
            f"system.width={width}: two directions share it; take {width - 1} or {width + 1}, or"
            " directions=1"
        )


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
