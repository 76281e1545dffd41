"""Sinusoidal positions (Vaswani et al. 2017).

    PE[p, 2i] = sin(p / 10000^(2i/d))        PE[p, 2i+1] = cos(p / 10000^(2i/d))

Added to the embeddings. Sines and cosines interleave as in the paper (its released code puts them
in two halves on a slightly different frequency grid: weights do not carry over). An odd width drops
the last cosine. Axis letters: B batch, T length, d model width. Cost: d sines for each position; no
parameters. Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017, section 3.5.
"""

from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.positions.protocol import PositionScheme
from attnlab.layers.precision import inner_dtype


class Sinusoidal(PositionScheme):
    """Fixed sines and cosines of the position, no parameters, any length.

    Attributes:
      base: the ratio of the longest to the shortest wavelength, 10000 in the paper.

    Card: absolute; Vaswani et al., Attention Is All You Need, NeurIPS 2017; time T d.
    """

    base: float = 10000.0

    hooks = frozenset({"embedding"})

    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """x [B,T,d] + PE[positions]; the table is computed in the inner precision and added in the
        dtype of x.
        """
        return x + sinusoid(positions, x.shape[-1], self.base, inner_dtype(x)).astype(x.dtype)


def sinusoid(
    positions: jax.Array, width: int, base: float = 10000.0, dtype: Any = jnp.float32
) -> jax.Array:
    """Computes the sinusoidal encoding PE [..., width] of positions [...], sines and cosines in
    turn, in the given dtype.
    """
    frequency = base ** -(jnp.arange(0, width, 2, dtype=dtype) / width)
    angle = positions.astype(dtype)[..., None] * frequency
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1).reshape(
        *positions.shape, 2 * len(frequency)
    )[..., :width]
