"""Recurrent layers that a config can name: tanh RNN, GRU, LSTM.

    tanh    h' = tanh(p + h U)                                                      gates 1
    gru     r, z = sigmoid(p_r + h U_r), sigmoid(p_z + h U_z)                       gates 3
            h' = (1 - z) h + z tanh(p_n + (r * h) U_n)
    lstm    see `lstm`                                                              gates 4

where p = x W + b [B, gates H] is the contribution of the input, for all steps at once. W and b
start as `Initial` says (the forget gates of an LSTM open), U orthogonal.

Source: J. L. Elman, "Finding Structure in Time", Cognitive Science 1990 (tanh); K. Cho et al.,
EMNLP 2014, in the form of D. Bahdanau, K. Cho, Y. Bengio, ICLR 2015, appendix A.1.1, where z is the
share of the new state (gru); S. Hochreiter, J. Schmidhuber, Neural Computation 1997 (lstm).

Axis letters: B batch, T time, E input width, H state width.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.layers.initial import Initial
from attnlab.layers.recurrent import GRUCell
from attnlab.layers.recurrent import HiddenState as HiddenState
from attnlab.layers.recurrent import Recurrent as Recurrent


class TanhCell(nn.Module):
    """h' = tanh(p + h U), U orthogonal at the start.

    Attributes:
      width: H.
      initial: how U starts.
    """

    width: int
    initial: Initial = Initial()

    def setup(self) -> None:
        self.past = self.param("past", self.initial.recurrent(), (self.width, self.width), float)

    def __call__(self, state: HiddenState, contribution: jax.Array) -> HiddenState:
        """The state [B,H] and the input's contribution [B,H] to the next state."""
        return HiddenState(jnp.tanh(contribution + state.h @ self.past))


class TanhLayer(Recurrent):
    """The simple recurrent network, h' = tanh(p + h U) (Elman 1990)."""

    @nn.nowrap
    def make_cell(self) -> TanhCell:
        """See `Recurrent.make_cell`."""
        return TanhCell(self.width, self.initial)


class StatefulGRUCell(GRUCell):
    """`GRUCell` from a state to a state."""

    def __call__(  # type: ignore[override]
        self, state: HiddenState, contribution: jax.Array
    ) -> HiddenState:
        """The state [B,H] and the input's contribution [B,3H] to the next state."""
        return HiddenState(super().__call__(state.h, contribution))


class GRULayer(Recurrent):
    """The gated recurrent unit (Cho et al. 2014) in the form of Bahdanau et al. 2015."""

    gates = 3

    @nn.nowrap
    def make_cell(self) -> StatefulGRUCell:
        """See `Recurrent.make_cell`."""
        return StatefulGRUCell(self.width)
