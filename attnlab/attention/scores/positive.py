"""A learned number that stays above zero: softplus(raw) = log(1 + exp(raw))."""

from __future__ import annotations

import math

import flax.linen as nn
import jax

from attnlab.layers.precision import widened


class Positive(nn.Module):
    """softplus(raw), one number; raw starts so that softplus(raw) = `start`.

    Attributes:
      start: the value at the start, above 0.
    """

    start: float

    @nn.compact
    def __call__(self, shift: jax.Array | float = 0.0) -> jax.Array:
        """softplus(raw + shift), float32: [1], or the shape of a shift [...,1]."""
        inverse = self.start + math.log(-math.expm1(-self.start))
        raw = self.param("raw", nn.initializers.constant(inverse), (1,))
        return jax.nn.softplus(widened(raw) + shift)
