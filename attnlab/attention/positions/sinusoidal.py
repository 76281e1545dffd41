"""Sinusoidal positions (Vaswani et al. 2017).

    PE[p, 2i] = sin(p / 10000^(2i/d))        PE[p, 2i+1] = cos(p / 10000^(2i/d))

Added to the embeddings. Sines and cosines interleave as in the paper (its released code puts them in two halves on a slightly
different frequency grid: weights do not carry over). An odd width drops the last cosine.
Axis letters: B batch, T length, d model width. Cost: d sines for each position; no parameters.
Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017, section 3.5.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.cards import Card, Cost, Sizes
from attnlab.attention.positions.protocol import PositionScheme


class Sinusoidal(PositionScheme):
    """Fixed sines and cosines of the position, no parameters, any length.

    Attributes:
      base: the ratio of the longest to the shortest wavelength, 10000 in the paper.
    """

    base: float = 10000.0

    hooks = frozenset({"embedding"})
    card = Card("absolute", 2017, "Vaswani et al., Attention Is All You Need, NeurIPS 2017", "T d")

    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """x [B,T,d] + PE[positions]; the table is computed in float32 and added in the dtype of x."""
        return x + sinusoid(positions, x.shape[-1], self.base).astype(x.dtype)

    @nn.nowrap
    def cost(self, at: Sizes) -> Cost:
        """See `PositionScheme.cost`."""
        return Cost(flops=5 * at.queries * at.width // 2)  # half as many angles as sines and cosines


def sinusoid(positions: jax.Array, width: int, base: float = 10000.0) -> jax.Array:
    """PE at positions [...], float32 [..., width]."""
    frequency = base ** -(jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle = positions.astype(jnp.float32)[..., None] * frequency
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(*positions.shape, -1)[..., :width]
