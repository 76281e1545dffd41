"""Causal and centred convolutions along a sequence, over a whole one or one step at a time: gated ones with
normalised weights, and a short one of each channel by itself (`ShortConvolution`, which has its own formula
and source).

    W = g v / |v|                                     for each output unit; |.| over the window and the inputs
    A, B = the halves of  b + sum_j x_{t+j} W_j       j over a window of k: centred on t ("same"), or ending there ("causal")
    y_t  = A * sigmoid(B)                             the gated linear unit

v is drawn from N(0, s^2 p / n) with n numbers in the sum, p the share of them that dropout leaves,
and s = 2 before a gate, which lets about a quarter of the variance through, else 1; g starts at
|v|, so that W starts as v. b starts at zero. Source: J. Gehring et al., "Convolutional Sequence to
Sequence Learning", ICML 2017, section 3.5 (initialisation); Y. Dauphin, A. Fan, M. Auli, D.
Grangier, "Language Modeling with Gated Convolutional Networks", ICML 2017 (the unit); T. Salimans,
D. P. Kingma, "Weight Normalization", NeurIPS 2016. `flax.linen.WeightNorm` starts g at 1 instead of
|v|, which would undo the initialisation.

Axis letters: B batch, T time, n width of x, d width of y, k window.
"""

import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.errors import at_least
from attnlab.layers.dense import Dropout, matmul
from attnlab.layers.history import over_real
from attnlab.layers.initial import symmetric

GATED = 2.0  # s, before a gated linear unit


class NormedDense(nn.Module):
    """x W + b over the last axis, W normalised: x [..., n] to [..., features].

    Attributes:
      features: width of the result.
      keep: p, one minus the rate of the dropout that x went through.
      gain: s.
    """

    features: int
    keep: float = 1.0
    gain: float = 1.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes y = x W + b for x [..., n], y [..., features], W = g v / |v| with one learned
        length g for each column.
        """
        size = x.shape[-1]
        v = jnp.asarray(
            self.param(
                "v",
                nn.initializers.normal(self.gain * math.sqrt(self.keep / size)),
                (size, self.features),
            )
        )
        scale = self.param("g", lambda key: _lengths(v))
        return matmul(x, v * (scale / _lengths(v))) + self.param(
            "bias", nn.initializers.zeros, (self.features,)
        )


def _lengths(v: jax.Array) -> jax.Array:
    """|v| of every column."""
    return jnp.sqrt((v * v).sum(axis=0))


class GatedConvolution(nn.Module):
    """Dropout, a convolution to 2d units, a gated linear unit.

    Attributes:
      width: d.
      kernel: k, odd for `same`.
      dropout: rate on x.
    """

    width: int
    kernel: int
    dropout: float = 0.0

    def setup(self) -> None:
        self.linear = NormedDense(2 * self.width, 1.0 - self.dropout, GATED)
        self.drop = Dropout(self.dropout)

    def same(self, x: jax.Array, valid: jax.Array) -> jax.Array:
        """x [B,T,n] to [B,T,d], each y_t from x_{t-(k-1)/2} ... x_{t+(k-1)/2}; positions that are
        not valid [B,T] or beyond the ends count as 0.
        """
        side = self.kernel // 2
        return self._windows(
            jnp.pad(jnp.where(valid[..., None], x, 0), ((0, 0), (side, side), (0, 0)))
        )

    def causal(
        self, x: jax.Array, earlier: jax.Array, valid: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Computes x [B,T,n] -> [B,T,d], y_t from x_{t-k+1} ... x_t, where `earlier` are the k-1
        inputs [B,k-1,n] before x; returns y, 0 at tokens that are not `valid` [B,T] (None: all
        are), which are passed over, and the k-1 inputs before the next piece.
        """
        return over_real(self._windows, x, earlier, valid)

    def _windows(self, x: jax.Array) -> jax.Array:
        """x [B,T+k-1,n] to [B,T,d]: windows are concatenated and multiplied in one product, which
        is faster on a CPU than a convolution.
        """
        x = self.drop(x)
        length = x.shape[1] - self.kernel + 1
        windows = [x[:, j : j + length] for j in range(self.kernel)]
        return jax.nn.glu(self.linear(jnp.concatenate(windows, axis=-1)))


def nothing_before(
    rows: int, width: int, kernel: int, dtype: jax.typing.DTypeLike = jnp.float32
) -> jax.Array:
    """The inputs before a sequence for `GatedConvolution.causal`: zeros [rows,k-1,width]."""
    return jnp.zeros((rows, kernel - 1, width), dtype)


class ShortConvolution(nn.Module):
    """A short causal convolution of each channel by itself, before a recurrence: it lets a token see
    what stands just before it, which a state alone does not.

        y_t = a(b + sum_j c_j * x_{t-j})          j = 0, ..., k - 1, over the real tokens; zeros before the first

    c_j [n] for n channels, from U(-1/sqrt(k), 1/sqrt(k)); b from 0. Padding is skipped, and y is 0
    there. Source: D. Fu et al., "Hungry Hungry Hippos", ICLR 2023 (shift); A. Gu, T. Dao, "Mamba",
    2023; with k = 4 on queries, keys and values in S. Yang et al., "Parallelizing Linear
    Transformers with the Delta Rule", NeurIPS 2024.

    Attributes:
      kernel: k, at least 1.
      activation: a.
      use_bias: whether b exists.
    """

    kernel: int = 4
    activation: Literal["silu", "none"] = "silu"
    use_bias: bool = False

    @nn.compact
    def __call__(
        self, x: jax.Array, earlier: jax.Array | None = None, valid: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        """Convolves each channel of x [B,T,n] causally over its real tokens (`valid` [B,T], or
        all), after the `earlier` inputs [B,k-1,n] (None: zeros), with bias and SiLU if the fields
        say so; returns y [B,T,n], 0 at padding, and the last k - 1 real inputs [B,k-1,n]; raises
        `UserError` for a kernel below 1.

        Raises:
          UserError: a kernel below 1.
        """
        at_least(1, "short convolution", kernel=self.kernel)
        rows, length, width = x.shape
        taps = self.param("kernel", symmetric(1.0 / math.sqrt(self.kernel)), (self.kernel, width))
        if earlier is None:
            earlier = nothing_before(rows, width, self.kernel, x.dtype)
        bias = self.param("bias", nn.initializers.zeros, (width,)) if self.use_bias else None

        def causal(inputs: jax.Array) -> jax.Array:
            ends = range(self.kernel - 1, -1, -1)
            y = sum(inputs[:, n : n + length] * tap for n, tap in zip(ends, taps, strict=True))
            y = y if bias is None else y + bias
            return jax.nn.silu(y) if self.activation == "silu" else jnp.asarray(y)

        return over_real(causal, x, earlier, valid)
