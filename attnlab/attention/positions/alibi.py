"""Attention with linear biases (Press, Smith, Lewis 2022).

    e_ij = score(q_i, k_j) - m_h |i - j|                m_h = 2^(-8 h / H), h = 1..H, where H is a power of two

Any other H: the slopes of the next smaller power of two n, then every other one of those of 2n,
from its first. Axis letters: H heads, Tq queries, Tk keys. Cost: one product and one sum for each
pair; no parameters. Source: O. Press, N. A. Smith, M. Lewis, "Train Short, Test Long: Attention
with Linear Biases Enables Input Length Extrapolation", ICLR 2022 (arXiv 2108.12409), section 3, and
the authors' code for H that are no power of two. The paper is causal, where |i - j| is i - j; for
keys after the query there is no agreed form; we use the distance. The bias is not scaled.
"""

import jax
import jax.numpy as jnp

from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.view import View
from attnlab.layers.precision import inner_dtype


class Alibi(PositionScheme):
    """A penalty that grows with the distance, at a fixed slope for each head.

    Attributes:
      strength: factor of all slopes; 1 in the paper, 0 for no positions.

    Card: relative; Press et al., Train Short, Test Long, ICLR 2022; time T^2.
    """

    strength: float = 1.0

    hooks = frozenset({"score"})

    def bias(self, q: jax.Array, view: View, scale: float = 1.0) -> jax.Array:
        """Computes the bias -m_h |i - j| `strength`, float32 [1 or B,H,Tq,Tk], of the positions i
        and j in the view, m_h the fixed slope of each head; of q only shape and dtype are used,
        `scale` is not. See `PositionScheme.bias`.
        """
        slope = jnp.asarray(slopes(q.shape[1]), inner_dtype(q))[:, None, None] * self.strength
        distance = jnp.abs(view.rows - view.columns)
        return -(slope * distance.astype(slope.dtype))


def slopes(heads: int) -> list[float]:
    """m_h of every head, in their order."""
    power = 1 << (heads.bit_length() - 1)
    return _geometric(power) + _geometric(2 * power)[::2][: heads - power]


def _geometric(heads: int) -> list[float]:
    return [2.0 ** (-8.0 * h / heads) for h in range(1, heads + 1)]
