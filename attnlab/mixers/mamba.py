"""Mamba-2 (Dao and Gu 2024): a state-space layer whose decay is one number for each head and token.

    z, c, dt  = x W_in                                          z and the first part of c are `expansion` widths wide
    v, B, C   = silu(convolution(c))                            k taps for each channel; B and C [N] are shared by all heads
    dt_t      = softplus(dt + b),  a_t = e^{-dt_t e^A}          one number for each head
    S_t       = a_t S_{t-1} + dt_t B_t v_t^T                    y_t = C_t^T S_t + D_h v_t
    out       = RMSNorm(y * silu(z)) W_o                        the norm over all heads together

e^A starts uniform in [1, 16], dt log-uniform in [1e-3, 0.1] (through b), D from 1. Source: T. Dao, A.
Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State
Space Duality", ICML 2024 (arXiv 2405.21060), sections 5 to 7, with one group, k = 4, N = 128 and
heads of 64 as in the paper.

Axis letters: B batch, H heads, T tokens of a piece, N rows of the state, P width of a head, d width.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.layers.convolution import ShortConvolution
from attnlab.layers.dense import Dense, joined, split, widened
from attnlab.layers.norms import GatedNorm
from attnlab.mixers.stateful import Shape, State, Stateful, Steps

FASTEST, SLOWEST, FLOOR = 0.1, 1e-3, 1e-4  # of dt at the start


class Mamba(Stateful):
    """Mamba-2. The fields not named here are those of `Stateful`.

    Attributes:
      state: N.
      head_width: P; must divide `expansion` widths.
      expansion: the width of all values, in widths.
      kernel: k.

    Card: state; Dao and Gu, Transformers are SSMs, ICML 2024; time T d^2 + T d N; state d N;
    path 1; steps T / C.
    """

    state: int = 128
    head_width: int = 64
    expansion: int = 2
    kernel: int = 4

    def setup(self) -> None:
        """Creates the input projection, the short convolution, the rates, first step sizes and skip
        of each head, the gated norm and the output projection; raises UserError as `shape` does.
        """
        shape = self.shape()
        wide = self.expansion * self.width
        self.w_in = Dense(wide + shape.channels + shape.heads, use_bias=False)
        self.convolution = ShortConvolution(self.kernel, use_bias=True)
        self.rate = self.param("rate", rates, (shape.heads,))
        self.step = self.param("step", first_steps, (shape.heads,))
        self.skip = self.param("skip", nn.initializers.ones, (shape.heads,))
        self.norm = GatedNorm(first="gate")
        self.out = Dense(self.width, use_bias=False)

    @nn.nowrap
    def shape(self) -> Shape:
        """Returns the sizes of the state, a `Shape`: heads of `head_width`, `state` rows; raises
        UserError if the head width does not divide expansion * width, or `state` or `kernel` is
        below 1. See `Stateful.shape`.
        """
        wide = self.expansion * self.width
        if self.head_width < 1 or wide % self.head_width or min(self.state, self.kernel) < 1:
            raise UserError(
                f"mamba: expansion * width = {wide} must be divisible by head_width="
                f"{self.head_width}, and state={self.state} and kernel={self.kernel} be at least 1"
            )
        return Shape(
            wide // self.head_width, self.state, self.head_width, self.kernel, wide + 2 * self.state
        )

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the recurrence for x [B,T,d], which hold C as queries, B as keys,
        values v and their scale dt, the log decay -dt e^A, z for the output, and the next `recent`
        (last inputs of the short convolution); `valid` [B,T]: real tokens; no `positions` are used.
        See `Stateful.steps`; the step dt goes with v, since heads share B.
        """
        shape, wide = self.shape(), self.expansion * self.width
        z, c, dt = jnp.split(self.w_in(x), (wide, wide + shape.channels), axis=-1)
        c, recent = self.convolution(c, recent, valid)
        v, b, c = jnp.split(c, (wide, wide + self.state), axis=-1)
        dt = jax.nn.softplus(widened(dt) + widened(self.step)).transpose(0, 2, 1)
        g = -dt * jnp.exp(widened(self.rate))[:, None]
        v = split(v, shape.heads)
        return Steps(c[:, None], b[:, None], v, g, None, z, recent, scale=dt[..., None])

    def recurrence(
        self, steps: Steps, state: State, valid: jax.Array | None, at_start: bool
    ) -> tuple[jax.Array, Any]:
        """See `Stateful.recurrence`; adds the skip, D v."""
        o, last = super().recurrence(steps, state, valid, at_start)
        return o + widened(self.skip)[:, None, None] * widened(steps.v), last

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        return self.out(self.norm(joined(o), extras).astype(x.dtype))


def rates(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Logarithms of rates drawn uniformly from [1, 16]."""
    return jnp.log(jax.random.uniform(key, shape, minval=1.0, maxval=16.0))


def first_steps(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The inverse of softplus of steps drawn log-uniformly from [SLOWEST, FASTEST]."""
    low, high = math.log(SLOWEST), math.log(FASTEST)
    dt = jnp.maximum(jnp.exp(jax.random.uniform(key, shape, minval=low, maxval=high)), FLOOR)
    return dt + jnp.log(-jnp.expm1(-dt))
