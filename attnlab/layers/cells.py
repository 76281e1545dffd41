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

from typing import Any, ClassVar

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.layers.dense import matmul
from attnlab.layers.initial import Initial
from attnlab.layers.recurrent import GRUCell


@flax.struct.dataclass
class HiddenState:
    """The hidden state h [B,H], which is the output too."""

    h: jax.Array

    @classmethod
    def zeros(
        cls, rows: int, width: int, dtype: jax.typing.DTypeLike = jnp.float32
    ) -> "HiddenState":
        """The state before the first token."""
        return cls(jnp.zeros((rows, width), dtype))


class CellInputs(nn.Module):
    """The contribution of an input to a cell, p = x W + b: x [...,E] to [..., gates H].

    Attributes:
      width: H.
      gates: how many blocks of H numbers the cell needs.
      initial: how W and b start.
    """

    width: int
    gates: int
    initial: Initial = Initial()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x [...,E] to [..., gates H]."""
        size, initializer = self.gates * self.width, self.initial.kernel(self.gates)
        product = matmul(x, self.param("kernel", initializer, (x.shape[-1], size), float))
        return product + self.param("bias", self.initial.bias(), (size,), float)


class Recurrent(nn.Module):
    """Base of every recurrent layer that a config can name: a cell over a padded sequence; the
    state is copied through padding.

    So the last state of a left-to-right pass is the state at the last real token, and a
    right-to-left pass starts there. Your own layer sets `gates` and returns the module of one step
    in `make_cell`; the state is a pytree with the output in `h`, made by `State.zeros`.

    Attributes:
      width: H.
      initial: how its weights start.
    """

    width: int
    initial: Initial = Initial()

    gates: ClassVar[int] = 1
    State: ClassVar[Any] = HiddenState

    @nn.nowrap
    def make_cell(self) -> Any:
        """The module of one step: the state and the input's contribution [B, gates H] to the next
        state.
        """
        raise NotImplementedError

    @nn.nowrap
    def make_inputs(self) -> Any:
        """The module of the contribution of inputs: x [...,E] to [..., gates H]."""
        return CellInputs(self.width, self.gates, self.initial)

    def setup(self) -> None:
        self.of_input: Any = self.make_inputs()
        self.cell: Any = self.make_cell()

    def __call__(
        self,
        x: jax.Array,
        valid: jax.Array | None = None,
        start: Any = None,
        reverse: bool = False,
    ) -> tuple[jax.Array, Any]:
        """Runs the cell over x [B,T,E] from state `start` (None: zeros), from right to left if
        `reverse`, skipping tokens that are not `valid` [B,T] (None: all are); returns the outputs h
        [B,T,H] and the last state.

        `reverse` reads from right to left; outputs keep the positions of their inputs.
        """
        contribution = self.of_input(x)
        state = self.State.zeros(x.shape[0], self.width) if start is None else start
        state = jax.tree.map(lambda leaf: leaf.astype(contribution.dtype), state)

        def step(
            cell: Any, state: Any, inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[Any, jax.Array]:
            """Returns the state after one token, unchanged in rows where it is padding, and its h
            as output.
            """
            p, real = inputs
            state = jax.tree.map(
                lambda new, old: jnp.where(real[:, None], new, old), cell(state, p), state
            )
            return state, state.h

        scan = nn.scan(
            step,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=1,
            out_axes=1,
            reverse=reverse,
        )
        real = jnp.ones(x.shape[:2], bool) if valid is None else valid
        last, outputs = scan(self.cell, state, (contribution, real))
        return outputs, last

    def step(self, state: Any, x: jax.Array) -> Any:
        """One step: the state [B,H] and x [B,E] to the next state."""
        return self.cell(state, self.of_input(x))


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
