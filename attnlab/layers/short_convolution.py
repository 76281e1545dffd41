"""A short causal convolution of each channel by itself, before a recurrence: it lets a token see what
stands just before it, which a state alone does not.

    y_t = a(b + sum_j c_j * x_{t-j})          j = 0, ..., k - 1, over the real tokens; zeros before the first

c_j [n] for n channels, from U(-1/sqrt(k), 1/sqrt(k)); b from 0. Padding is skipped, and y is 0
there. Source: D. Fu et al., "Hungry Hungry Hippos", ICLR 2023 (shift); A. Gu, T. Dao, "Mamba",
2023; with k = 4 on queries, keys and values in S. Yang et al., "Parallelizing Linear Transformers
with the Delta Rule", NeurIPS 2024.

Axis letters: B batch, T tokens of a piece, n channels, k taps.
"""

import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.errors import at_least
from attnlab.layers.convolution import nothing_before
from attnlab.layers.history import after, latest
from attnlab.layers.initial import symmetric


class ShortConvolution(nn.Module):
    """A causal convolution of each channel.

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
        order = None if valid is None else jnp.argsort(~valid, axis=1, stable=True)[..., None]
        real = x if order is None else jnp.take_along_axis(x, order, axis=1)
        inputs = after(earlier, real)
        last = self.kernel - 1
        y = sum(inputs[:, last - j : last - j + length] * taps[j] for j in range(self.kernel))
        if self.use_bias:
            y = y + self.param("bias", nn.initializers.zeros, (width,))
        y = jax.nn.silu(y) if self.activation == "silu" else jnp.asarray(y)
        if valid is None or order is None:
            return y, inputs[:, length:]
        y = jnp.take_along_axis(y, jnp.argsort(order, axis=1), axis=1)
        window = latest(inputs, valid.sum(axis=1, dtype=jnp.int32), last)
        return jnp.where(valid[..., None], y, 0), window
