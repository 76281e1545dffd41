"""LSTM layers one above the other, and side by side from both ends.

Axis letters: B batch, T time, E input width, H state width, L layers.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.layers.dense import Dropout
from attnlab.layers.initial import Initial
from attnlab.layers.lstm import LSTMLayer, LSTMState

States = tuple[LSTMState, ...]


class BidirectionalLSTM(nn.Module):
    """Two LSTMs, one from each end, their outputs side by side: x [B,T,E] to [B,T,2H].

    Attributes:
      width: H, of each direction.
      initial: how its weights start.
    """

    width: int
    initial: Initial = Initial()

    def setup(self) -> None:
        self.forward = LSTMLayer(self.width, self.initial)
        self.backward = LSTMLayer(self.width, self.initial)

    def __call__(
        self, x: jax.Array, valid: jax.Array | None = None
    ) -> tuple[jax.Array, tuple[LSTMState, LSTMState]]:
        """x [B,T,E] and valid [B,T] to the outputs [B,T,2H], forward half first, and the states
        after the last and the first token.
        """
        forward, at_end = self.forward(x, valid)
        backward, at_beginning = self.backward(x, valid, reverse=True)
        return jnp.concatenate([forward, backward], axis=-1), (at_end, at_beginning)


class LSTMStack(nn.Module):
    """L LSTM layers: each reads what the one below puts out.

        x^0 = x        y^l = LSTM^l(dropout(x^{l-1}))        x^l = y^l, or y^l + x^{l-1} from layer `residual` on

    The state, one for each layer, is what its LSTM put out, without the sum. Without layers it is
    the identity. Dropout and sums as in W. Zaremba, I. Sutskever, O. Vinyals, "Recurrent Neural
    Network Regularization", 2014 (no connection from step to step is dropped), and Y. Wu et al.,
    "Google's Neural Machine Translation System", 2016.

    Attributes:
      width: H of every layer.
      layers: L.
      dropout: rate on the input of every layer.
      residual: the first layer whose input is added to its output, 2 for the second; 0 for none.
      initial: how the weights start.
    """

    width: int
    layers: int = 1
    dropout: float = 0.0
    residual: int = 0
    initial: Initial = Initial()

    def setup(self) -> None:
        if self.residual == 1:
            raise ValueError(
                "the lowest layer's input is not added to its output: residual starts at 2"
            )
        self.layer = [LSTMLayer(self.width, self.initial) for _ in range(self.layers)]
        self.drop = Dropout(self.dropout)

    def __call__(
        self,
        x: jax.Array,
        valid: jax.Array | None = None,
        start: States | None = None,
        reverse: bool = False,
    ) -> tuple[jax.Array, States]:
        """x [B,T,E], valid [B,T] (None: all real) and the first states (zeros unless given) to the
        outputs [B,T,H] and the last states.
        """
        last = []
        for number, layer in enumerate(self.layer):
            y, state = layer(self.drop(x), valid, None if start is None else start[number], reverse)
            x = self._summed(number, x, y)
            last.append(state)
        return x, tuple(last)

    def contribute(self, x: jax.Array) -> jax.Array:
        """What inputs [...,E] give to the gates of the lowest layer, [...,4H], for all steps at
        once.
        """
        return self.layer[0].of_input(self.drop(x))

    def advance(self, states: States, contribution: jax.Array) -> tuple[jax.Array, States]:
        """One step inside a loop: the states and all that is given to the lowest gates [B,4H] to
        the output [B,H] and the next states.
        """
        found = [self.layer[0].cell(states[0], contribution)]
        x = found[0].h
        for number, layer in enumerate(self.layer[1:], start=1):
            state = layer.step(states[number], self.drop(x))
            x = self._summed(number, x, state.h)
            found.append(state)
        return x, tuple(found)

    def _summed(self, number: int, x: jax.Array, y: jax.Array) -> jax.Array:
        return y + x if 0 < self.residual <= number + 1 else y
