"""Absolute position schemes: a vector for each position, added to the embedding of its token.

    sinusoidal   PE[p, 2i] = sin(p / 10000^(2i/d)),  PE[p, 2i+1] = cos(p / 10000^(2i/d))     Vaswani et al. 2017
    learned      one trained vector for each position, x_p + E[p]                            Gehring et al. 2017

Axis letters: B batch, T length, d model width.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.positions.protocol import PositionScheme
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import inner_dtype


class Sinusoidal(PositionScheme):
    """Fixed sines and cosines of the position, no parameters, any length.

        PE[p, 2i] = sin(p / 10000^(2i/d))        PE[p, 2i+1] = cos(p / 10000^(2i/d))

    Sines and cosines interleave as in the paper (its released code puts them in two halves on a
    slightly different frequency grid: weights do not carry over). An odd width drops the last
    cosine. Cost: d sines for each position; no parameters. Source: A. Vaswani et al., "Attention Is
    All You Need", NeurIPS 2017, section 3.5.

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


class Learned(PositionScheme):
    """A trained vector for each position; no token may stand beyond the table.

    Cost: a gather; length * d parameters. Source: J. Gehring et al., "Convolutional Sequence to
    Sequence Learning", ICML 2017, section 3.1; compared with sinusoids in A. Vaswani et al.,
    "Attention Is All You Need", NeurIPS 2017, table 3 row E. The standard deviation of 0.02 is that
    of GPT-2 and BERT.

    Attributes:
      length: how many positions have a vector: 0 to length - 1; no longer sequence can be read.
      unused: rows of the table before that of position 0, which nothing reads; BART's has 2.
      stddev: standard deviation of the normal distribution that the vectors are drawn from.

    Card: absolute; Gehring et al., Convolutional Sequence to Sequence, ICML 2017; time T d.
    """

    length: int = 512
    unused: int = 0
    stddev: float = 0.02

    hooks = frozenset({"embedding"})

    def setup(self) -> None:
        at_least(1, "position scheme learned", length=self.length)
        at_least(0, "position scheme learned", unused=self.unused)

    @property
    def longest(self) -> int:
        """See `PositionScheme.longest`: the rows of the table that are used."""
        return self.length

    @nn.compact
    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Adds to x [B,T,d] the rows of a learned table at the positions, E[positions], in the
        dtype of x; raises UserError if the table is too short.

        Traced positions (one step of decoding) cannot be checked: beyond the table they give NaN.

        Raises:
          UserError: there are more tokens than rows of the table, or a known position lies beyond
            it.
        """
        longest = max(x.shape[1] if positions.ndim == 1 else 0, _longest(positions))
        if longest > self.length:
            raise UserError(
                f"position scheme learned: length={self.length}, but a sequence is {longest} long;"
                f" set length={longest} or choose 'sinusoidal', which has no end"
            )
        size = self.length + self.unused, x.shape[-1]
        table = self.param("table", nn.initializers.normal(self.stddev), size)
        rows = (
            jnp.asarray(table)[self.unused :]
            .at[positions]
            .get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        )
        return x + rows.astype(x.dtype)


def _longest(positions: jax.Array) -> int:
    """How many rows of the table the positions need; 0 if the positions are traced."""
    unknown = isinstance(positions, jax.core.Tracer) or positions.size == 0
    return 0 if unknown else int(np.asarray(positions).max()) + 1
