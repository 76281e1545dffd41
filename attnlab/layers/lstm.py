"""Long short-term memory; products that do not depend on the state are outside the loop, forward
and backward.

    i, f, o, g = sigmoid(p_i + h U_i), sigmoid(p_f + h U_f), sigmoid(p_o + h U_o), tanh(p_g + h U_g)
    c'         = f * c + i * g
    h'         = o * tanh(c')

where p = x W + b is the input's contribution. In W, U and b the order of the gates is i, f, o, g
(flax and torch have i, f, g, o). Each of the four blocks of W starts Glorot uniform, each of U
orthogonal, b at zero but for the forget gate, where it is 1 (see `initial`). No peepholes. Layers
in a row and in both directions are in `readers`. Source: S. Hochreiter, J. Schmidhuber, "Long
Short-Term Memory", Neural Computation 1997, with the forget gate of F. Gers et al., 2000.

Axis letters: B batch, T time, E input width, H state width. Inside, time comes first, as loops want
it.
"""

import functools
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.gathering import rows_are_dealt
from attnlab.layers.dense import Dense
from attnlab.layers.initial import Initial, side_by_side
from attnlab.layers.recurrent import Recurrent

GATES = 4  # in the order i, f, o, g


@flax.struct.dataclass
class LSTMState:
    """The memory cell c [B,H] and the hidden state h [B,H], which is the output too."""

    c: jax.Array
    h: jax.Array

    @classmethod
    def zeros(cls, rows: int, width: int, dtype: jax.typing.DTypeLike = jnp.float32) -> "LSTMState":
        """The state before the first token."""
        return cls(*(jnp.zeros((rows, width), dtype) for _ in range(2)))


def gated(contribution: jax.Array, c: jax.Array) -> LSTMState:
    """The next state from the sum of all contributions to the gates [B,4H] and the cell c [B,H]."""
    return _unit(_activated(contribution), c)


def _activated(contribution: jax.Array) -> jax.Array:
    """Computes the gates [B,4H] of an LSTM from their sums [B,4H]: sigmoid of the first three
    blocks, tanh of the last.
    """
    width = contribution.shape[-1] // GATES
    return jnp.concatenate(
        [jax.nn.sigmoid(contribution[:, : 3 * width]), jnp.tanh(contribution[:, 3 * width :])],
        axis=-1,
    )


def _unit(gates: jax.Array, c: jax.Array) -> LSTMState:
    i, f, o, g = jnp.split(gates, GATES, axis=-1)
    c = f * c + i * g
    return LSTMState(c, o * jnp.tanh(c))


def _where(real: jax.Array | None, new: Any, old: Any) -> Any:
    """Returns the arrays [B,...] of `new` where `real` [B] (None: all), those of `old` elsewhere."""
    return (
        new if real is None else jax.tree.map(lambda x, y: jnp.where(real[:, None], x, y), new, old)
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def recurrence(
    past: jax.Array,
    contribution: jax.Array,
    valid: jax.Array | None,
    start: LSTMState,
    reverse: bool,
    dealt: bool = False,
) -> tuple[jax.Array, LSTMState]:
    """Runs all steps of an LSTM with recurrent matrix `past` [H,4H] on contributions [T,B,4H] of
    the inputs from state `start`, from the last if `reverse`, keeping the state where `valid` [T,B]
    is false; returns the outputs h [T,B,H] and the last state; `dealt`: the rows B are divided over
    devices. See `gathering.rows_are_dealt`.

    Automatic differentiation of a loop would add to the gradient of U at every step: a product with
    B rows, and a pass over the 4 H^2 numbers of U. Here the backward loop only computes the
    gradients of the gates; one product over all T B rows follows. Reverse mode only: JAX refuses
    forward-mode derivatives (`jax.jvp`, `jax.jacfwd`) with a TypeError.
    """

    def step(
        state: LSTMState, inputs: tuple[jax.Array, jax.Array | None]
    ) -> tuple[LSTMState, jax.Array]:
        p, real = inputs
        following = _where(real, gated(p + state.h @ past, state.c), state)
        return following, following.h

    last, outputs = jax.lax.scan(step, start, (contribution, valid), reverse=reverse)
    return outputs, last


def _recurrence_forward(
    past: jax.Array,
    contribution: jax.Array,
    valid: jax.Array | None,
    start: LSTMState,
    reverse: bool,
    dealt: bool,
) -> tuple[tuple[jax.Array, LSTMState], Any]:
    """Computes the results of `recurrence` (outputs h [T,B,H] and last state) from its arguments,
    and, second, the residuals of its backward pass: recurrent matrix, `valid`, first state, states
    and gates of all steps.
    """

    def step(
        state: LSTMState, inputs: tuple[jax.Array, jax.Array | None]
    ) -> tuple[LSTMState, tuple[LSTMState, jax.Array]]:
        p, real = inputs
        gates = _activated(p + state.h @ past)
        following = _where(real, _unit(gates, state.c), state)
        return following, (following, gates)

    last, (states, gates) = jax.lax.scan(step, start, (contribution, valid), reverse=reverse)
    return (states.h, last), (past, valid, start, states, gates)


def _recurrence_backward(
    reverse: bool, dealt: bool, residuals: Any, slopes: tuple[jax.Array, LSTMState]
) -> tuple[jax.Array, jax.Array, None, LSTMState]:
    """Computes the gradients of `recurrence` by its recurrent matrix, contributions, `valid` (None)
    and first state, in a tuple, from the `residuals` of the forward pass and from `slopes`, the
    gradients of the outputs and of the last state.
    """
    past, valid, start, states, gates = residuals
    previous = jax.tree.map(functools.partial(_shifted, reverse=reverse), start, states)

    def step(later: LSTMState, inputs: tuple[jax.Array, ...]) -> tuple[LSTMState, jax.Array]:
        """Returns the gradient of the state before one step, from that after it, and the gradient
        of the sums of its gates [B,4H].
        """
        of_output, gates, c, old, real = inputs
        i, f, o, g = jnp.split(gates, GATES, axis=-1)
        grad = LSTMState(later.c, later.h + of_output)
        raised = jnp.tanh(c)
        of_cell = grad.c + grad.h * o * (1 - raised * raised)
        of_gates = (
            of_cell * g * i * (1 - i),
            of_cell * old * f * (1 - f),
            grad.h * raised * o * (1 - o),
            of_cell * i * (1 - g * g),
        )
        slope = jnp.concatenate(of_gates, axis=-1)
        slope = _where(real, slope, jnp.zeros_like(slope))
        return _where(real, LSTMState(of_cell * f, slope @ past.T), grad), slope

    of_outputs, of_last = slopes
    of_start, slope = jax.lax.scan(
        step, of_last, (of_outputs, gates, states.c, previous.c, valid), reverse=not reverse
    )
    if dealt:  # flattened, the rows of all devices would be gathered
        return jnp.einsum("tbh,tbg->hg", previous.h, slope), slope, None, of_start
    rows = slope.shape[0] * slope.shape[1]
    of_past = previous.h.reshape(rows, -1).T @ slope.reshape(rows, -1)
    return of_past, slope, None, of_start


def _shifted(start: jax.Array, states: jax.Array, reverse: bool) -> jax.Array:
    """Returns the state before every step, [T,B,H], from the first state and those after steps."""
    if reverse:
        return jnp.concatenate([states, start[None]])[1:]
    return jnp.concatenate([start[None], states])[:-1]


recurrence.defvjp(_recurrence_forward, _recurrence_backward)


class LSTMCell(nn.Module):
    """The recurrent half of the unit.

    Attributes:
      width: H.
      initial: how U starts.
    """

    width: int
    initial: Initial = Initial()

    def setup(self) -> None:
        initializer = side_by_side(self.initial.recurrent(), GATES)
        self.past = self.param("past", initializer, (self.width, GATES * self.width))

    def __call__(self, state: LSTMState, contribution: jax.Array) -> LSTMState:
        """The state [B,H] and the input's contribution [B,4H] to the next state."""
        return gated(contribution + state.h @ self.past, state.c)


class GateInputs(nn.Module):
    """The contribution of an input to the gates, p = x W + b, for all steps at once: x [...,E] to
    [...,4H].

    Attributes:
      width: H.
      initial: how W and b start.
    """

    width: int
    initial: Initial = Initial()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes the contribution x W + b [...,4H] of x [...,E] to the gates; the initial b of
        the forget gate is raised by `initial.forget`.
        """

        def bias(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            values = self.initial.bias()(key, shape, float)
            return values.at[self.width : 2 * self.width].add(self.initial.forget)

        product = Dense(
            GATES * self.width,
            use_bias=False,
            kernel_init=self.initial.kernel(GATES),
            name="kernel",
        )(x)
        return product + self.param("bias", bias, (GATES * self.width,))


class LSTMLayer(Recurrent):
    """An LSTM over a padded sequence; the state is copied through padding.

    So the last state of a left-to-right pass is the state at the last real token, and a
    right-to-left pass starts there.

    Attributes:
      width: H.
      initial: how its weights start.
    """

    gates = GATES
    State = LSTMState

    @nn.nowrap
    def make_inputs(self) -> GateInputs:
        """See `Recurrent.make_inputs`; the forget gates start open."""
        return GateInputs(self.width, self.initial)

    @nn.nowrap
    def make_cell(self) -> LSTMCell:
        """See `Recurrent.make_cell`."""
        return LSTMCell(self.width, self.initial)

    def __call__(
        self,
        x: jax.Array,
        valid: jax.Array | None = None,
        start: LSTMState | None = None,
        reverse: bool = False,
    ) -> tuple[jax.Array, LSTMState]:
        """Runs the LSTM over x [B,T,E] from state `start` (None: zeros), from right to left if
        `reverse`, skipping tokens that are not `valid` [B,T] (None: all are); returns the outputs h
        [B,T,H] and the last state.

        `reverse` reads from right to left; outputs keep the positions of their inputs.
        """
        contribution = self.of_input(jnp.swapaxes(x, 0, 1))
        state = LSTMState.zeros(x.shape[0], self.width) if start is None else start
        state = jax.tree.map(lambda leaf: leaf.astype(contribution.dtype), state)
        real = None if valid is None else valid.T
        outputs, last = recurrence(
            self.cell.past, contribution, real, state, reverse, rows_are_dealt()
        )
        return jnp.swapaxes(outputs, 0, 1), last
