"""Coordinate attention (Hou et al. 2021): a gate for each channel and row times one for each channel
and column.

    z^h = mean over the columns of x [B,H,C],   z^w = mean over the rows [B,W,C]
    f = hard_swish( norm( [z^h ; z^w] W_1 + b_1 ) ) [B,H+W,m]          m = max(C / r, least)
    g^h = sigmoid(f^h W_h + b_h) [B,H,C],   g^w = sigmoid(f^w W_w + b_w) [B,W,C]
    y_ijc = x_ijc g^h_ic g^w_jc

    hard_swish(x) = x min(max(x + 3, 0), 6) / 6

C / r is rounded down, but not below 1. Source: Q. Hou, D. Zhou, J. Feng, "Coordinate Attention for Efficient Mobile
Network Design", CVPR 2021, equations 4 to 8; norm, hard_swish, biases and the bound of 8 channels
are those of the released code, the norm also of figure 2. `least=0` is the formula of the paper.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.config.registry import Part, made
from attnlab.errors import at_least
from attnlab.layers import NORMS
from attnlab.layers.dense import Dense
from attnlab.layers.gates.protocol import Factor, reduced, sigmoid
from attnlab.layers.images import normed
from attnlab.layers.precision import widened


class Coordinate(Factor):
    """g_ijc = g^h_ic g^w_jc, from means along columns and rows.

    Attributes:
      reduction: r.
      least: lower bound of m.
      normalisation: the norm of the hidden channels.

    Card: rows and columns; Hou et al., Coordinate Attention, CVPR 2021; time N C + C^2 / r.
    """

    reduction: int = 32
    least: int = 8
    normalisation: Part = "batch_norm"

    parts = {"normalisation": NORMS}

    @nn.nowrap
    def hidden(self, channels: int) -> int:
        """m for C channels."""
        at_least(0, "gate Coordinate", least=self.least)
        return max(self.least, reduced(self, channels, self.reduction))

    @nn.compact
    def factor(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """Computes the gate g [B,H,W,C] of x [B,H,W,C] as the product of a gate for each row and
        one for each column, made of the means along rows and columns; `valid` [B]: which images are
        real, for the norm inside; raises `UserError` for fields below their minimum. See
        `Factor.factor`.
        """
        height, channels, wide = x.shape[1], x.shape[-1], widened(x)
        means = jnp.concatenate([wide.mean(axis=2), wide.mean(axis=1)], axis=1).astype(x.dtype)
        f = Dense(self.hidden(channels), name="inner")(means)
        norm = made(NORMS, self.normalisation)(name="normalisation")
        f = jax.nn.hard_swish(normed(norm, f, valid))
        rows = sigmoid(Dense(channels, name="rows")(f[:, :height]))
        columns = sigmoid(Dense(channels, name="columns")(f[:, height:]))
        return rows[:, :, None] * columns[:, None]
