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
from attnlab.layers.history import over_real
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
        bias = self.param("bias", nn.initializers.zeros, (width,)) if self.use_bias else None

        def causal(inputs: jax.Array) -> jax.Array:
            ends = range(self.kernel - 1, -1, -1)
            y = sum(inputs[:, n : n + length] * tap for n, tap in zip(ends, taps, strict=True))
            y = y if bias is None else y + bias
            return jax.nn.silu(y) if self.activation == "silu" else jnp.asarray(y)

        return over_real(causal, x, earlier, valid)
