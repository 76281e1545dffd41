"""Recurrent layers; products that do not depend on the state are outside the loop.

Axis letters: B batch, T time, E input width, H state width.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.layers.dense import Dense
from attnlab.layers.initial import Initial, side_by_side

GATES = 3  # in the order r, z, n


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


class GRULayer(nn.Module):
    """A GRU over a padded sequence; the state is copied through padding.

    So the last state of a left-to-right pass is the state at the last real token, and a
    right-to-left pass starts there.

    Attributes:
      width: H.
      initial: how the matrix of its inputs starts; those from state to state start orthogonal.
      unit: the kind of GRU.
    """

    width: int
    initial: Initial = Initial()
    unit: type[Unit] = GRUCell

    def setup(self) -> None:
        self.of_input = Dense(GATES * self.width, kernel_init=self.initial.kernel(GATES))
        self.cell = self.unit(self.width)

    def __call__(self, x: jax.Array, valid: jax.Array, reverse: bool = False) -> jax.Array:
        """Runs the GRU over x [B,T,E] from a state of zeros and returns the states [B,T,H]; where
        `valid` [B,T] is false the state stays; `reverse` reads from right to left.
        """

        def step(
            cell: Unit, state: jax.Array, inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array]:
            contribution, real = inputs
            state = jnp.where(real[:, None], cell(state, contribution), state)
            return state, state

        contribution = self.of_input(x)
        start = jnp.zeros((x.shape[0], self.width), contribution.dtype)
        scan = nn.scan(
            step,
            variable_broadcast="params",
            split_rngs={"params": False},
            in_axes=1,
            out_axes=1,
            reverse=reverse,
        )
        return scan(self.cell, start, (contribution, valid))[1]


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
