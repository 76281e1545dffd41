"""Recurrent layers: tanh RNN and GRU; products that do not depend on the state are outside the loop.

    tanh    h' = tanh(p + h U)                                                      gates 1
    gru     r, z = sigmoid(p_r + h U_r), sigmoid(p_z + h U_z)                       gates 3
            h' = (1 - z) h + z tanh(p_n + (r * h) U_n)
    lstm    see `lstm`                                                              gates 4

where p = x W + b [B, gates H] is the contribution of the input, for all steps at once. These three are
the layers that a config can name; W and b start as `Initial` says (the forget gates of an LSTM open), U
orthogonal. `GRULayer` and `BidirectionalGRU` are those of systems that have a GRU in their paper.

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

from attnlab.layers.dense import Dense, matmul
from attnlab.layers.initial import Initial, side_by_side

GATES = 3  # in the order r, z, n


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
        """Runs the cell over x [B,T,E] from `start`, an instance of the cell's `State` (None:
        zeros), from right to left if `reverse`, copying the state over tokens that are not `valid`
        [B,T] (None: all are); returns the outputs h [B,T,H], in the order of x, and the last
        `State`.

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
            new = self.following(cell, state, p)
            state = jax.tree.map(lambda new, old: jnp.where(real[:, None], new, old), new, state)
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

    @staticmethod
    def following(cell: Any, state: Any, contribution: jax.Array) -> Any:
        """Returns what the `cell` makes of a state and the input's contribution [B, gates H]: the
        next state.
        """
        return cell(state, contribution)

    def step(self, state: Any, x: jax.Array) -> Any:
        """One step: the state [B,H] and x [B,E] to the next state."""
        return self.following(self.cell, state, self.of_input(x))


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


class GRUCell(nn.Module):
    """The recurrent half of the gated recurrent unit of Bahdanau et al. 2015 (appendix A.1.1).

        r, z = sigmoid(p_r + h U_r), sigmoid(p_z + h U_z)
        n    = tanh(p_n + (r * h) U_n)
        h'   = (1 - z) * h + z * n

    where p = (p_r, p_z, p_n) = x W + b is the input's contribution, computed for all steps at once
    outside the loop; a decoder adds its context's contribution to it. z is the share of the *new*
    candidate (in Cho et al. 2014 of the old state) and the reset gate acts before the product (in
    `flax.linen.GRUCell` after it), so this is neither of those. U starts orthogonal.

    Attributes:
      width: H.
    """

    width: int

    def setup(self) -> None:
        orthogonal = nn.initializers.orthogonal()
        self.gates = self.param("gates", side_by_side(orthogonal, 2), (self.width, 2 * self.width))
        self.candidate = self.param("candidate", orthogonal, (self.width, self.width))

    def __call__(self, state: jax.Array, contribution: jax.Array) -> jax.Array:
        """state [B,H] and contribution [B,3H] to the next state [B,H]."""
        of_gates, of_candidate = jnp.split(contribution, [2 * self.width], axis=-1)
        reset, update = jnp.split(jax.nn.sigmoid(of_gates + state @ self.gates), 2, axis=-1)
        new = jnp.tanh(of_candidate + (reset * state) @ self.candidate)
        return state + update * (new - state)


class StatefulGRUCell(GRUCell):
    """`GRUCell` from a state to a state."""

    def __call__(  # type: ignore[override]
        self, state: HiddenState, contribution: jax.Array
    ) -> HiddenState:
        """The state [B,H] and the input's contribution [B,3H] to the next state."""
        return HiddenState(super().__call__(state.h, contribution))


class StatefulGRULayer(Recurrent):
    """The gated recurrent unit (Cho et al. 2014) in the form of Bahdanau et al. 2015."""

    gates = GATES

    @nn.nowrap
    def make_cell(self) -> StatefulGRUCell:
        """See `Recurrent.make_cell`."""
        return StatefulGRUCell(self.width)


class ContextGRUCell(nn.Module):
    """The recurrent half of the decoder's unit of Cho et al. 2014 (appendix A.1.2): the reset gate
    scales the context too.

        r, z = sigmoid(p_r + q_r + h U_r), sigmoid(p_z + q_z + h U_z)
        n    = tanh(p_n + r * (h U_n + q_n))
        h'   = (1 - z) * h + z * n

    where p = x W + b is the input's contribution and q = c C the context's, both computed outside
    the loop. As in `GRUCell`, z is the share of the *new* candidate; the paper's z is 1 - z, which
    is the same unit with U_z, W_z and C_z negated. U starts orthogonal. Without a context, q = 0,
    it is the unit of the DL4MT tutorial's encoder and of Nematus (Sennrich et al. 2017), whose
    reset gate acts after the product.

    Attributes:
      width: H.
    """

    width: int

    def setup(self) -> None:
        """Creates the recurrent matrix [H,3H], orthogonal at first in each block of H columns."""
        self.past = self.param(
            "past",
            side_by_side(nn.initializers.orthogonal(), GATES),
            (self.width, GATES * self.width),
        )

    def __call__(
        self, state: jax.Array, contribution: jax.Array, context: jax.Array | float = 0.0
    ) -> jax.Array:
        """Computes the next state [B,H] of the GRU from the `state` [B,H], the input's
        `contribution` [B,3H] and `context`, the contribution [B,3H] of a context (0 for none),
        which the reset gate scales too.
        """
        of_gates, of_candidate = jnp.split(contribution, [2 * self.width], axis=-1)
        past_gates, past_candidate = jnp.split(
            state @ self.past + context, [2 * self.width], axis=-1
        )
        reset, update = jnp.split(jax.nn.sigmoid(of_gates + past_gates), 2, axis=-1)
        new = jnp.tanh(of_candidate + reset * past_candidate)
        return state + update * (new - state)


Unit = GRUCell | ContextGRUCell


class GRULayer(Recurrent):
    """A GRU over a padded sequence; the state is copied through padding.

    So the last state of a left-to-right pass is the state at the last real token, and a
    right-to-left pass starts there.

    Attributes:
      width: H.
      initial: how the matrix of its inputs starts; those from state to state start orthogonal.
      unit: the kind of GRU.
    """

    unit: type[Unit] = GRUCell

    gates = GATES

    @nn.nowrap
    def make_inputs(self) -> Dense:
        """See `Recurrent.make_inputs`; biases start at 0."""
        return Dense(GATES * self.width, kernel_init=self.initial.kernel(GATES))

    @nn.nowrap
    def make_cell(self) -> Unit:
        """See `Recurrent.make_cell`; from an array to an array."""
        return self.unit(self.width)

    @staticmethod
    def following(cell: Unit, state: HiddenState, contribution: jax.Array) -> HiddenState:
        """See `Recurrent.following`."""
        return HiddenState(cell(state.h, contribution))

    def __call__(  # type: ignore[override]
        self, x: jax.Array, valid: jax.Array, reverse: bool = False
    ) -> jax.Array:
        """Runs the GRU over x [B,T,E] from a state of zeros and returns the states [B,T,H]; where
        `valid` [B,T] is false the state stays; `reverse` reads from right to left.
        """
        return super().__call__(x, valid, None, reverse)[0]


class BidirectionalGRU(nn.Module):
    """Two GRUs, one from each end, their states side by side: x [B,T,E] to [B,T,2H].

    Attributes:
      width: H, of each direction.
      initial, unit: see `GRULayer`.
    """

    width: int
    initial: Initial = Initial()
    unit: type[Unit] = GRUCell

    def setup(self) -> None:
        self.forward = GRULayer(self.width, self.initial, self.unit)
        self.backward = GRULayer(self.width, self.initial, self.unit)

    def __call__(self, x: jax.Array, valid: jax.Array) -> jax.Array:
        """x [B,T,E] and valid [B,T] to the annotations [B,T,2H], forward half first."""
        return jnp.concatenate(
            [self.forward(x, valid), self.backward(x, valid, reverse=True)], axis=-1
        )
