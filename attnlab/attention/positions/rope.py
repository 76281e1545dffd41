"""Rotary positions (Su et al. 2021).

    (y_a, y_b) = (x_a cos t - x_b sin t, x_b cos t + x_a sin t)        t = p f_m, f_m = base^(-2m/R), m = 0..R/2-1

for the R/2 pairs (a, b) of the first R channels of every query and key at position p; the other
channels do not change. The product of a query and a key then depends on i - j only. Values are not
rotated. Layouts: "interleaved" pairs channels (2m, 2m+1), as the paper and the original Llama do;
"half" pairs (m, m + R/2), as GPT-NeoX and most released weights do. One is the other with the
channels of queries and keys permuted. Axis letters: B batch, H heads, K key heads, T length, D head
width, R = share * D. Cost: 3 R FLOPs for each query and key; no parameters. Source: J. Su et al.,
"RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021 (arXiv 2104.09864), section
3.2; a share of the channels as in GPT-J and GPT-NeoX; scalings for longer sequences:
`rope_scaling`.
"""

from typing import Literal

import jax
import jax.numpy as jnp

from attnlab.attention.positions import SCALINGS
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.positions.rope_scaling import Unscaled
from attnlab.config.registry import Part, made
from attnlab.errors import UserError
from attnlab.layers.precision import inner_dtype, widened

Layout = Literal["interleaved", "half"]


class Rope(PositionScheme):
    """Queries and keys rotated by angles proportional to their position.

    Attributes:
      layout: which channels make a pair, "interleaved" (the paper) or "half".
      share: the share of the head width that is rotated, its first channels; above 0, at most 1.
      base: the ratio of the longest to the shortest wavelength, nearly; 10000 in the paper.
      scaling: how frequencies change for sequences longer than those trained on.

    Card: rotary; Su et al., RoFormer, 2021; time T D.
    """

    layout: Layout = "interleaved"
    share: float = 1.0
    base: float = 10000.0
    scaling: Part = "none"

    parts = {"scaling": SCALINGS}
    hooks = frozenset({"query_key"})

    def setup(self) -> None:
        """Checks that `share` is in (0, 1] and `base` above 1 (raises UserError if not), and
        creates the scaling of frequencies.
        """
        if not 0.0 < self.share <= 1.0:
            raise UserError(
                f"position scheme rope: share={self.share}, must be above 0 and at most 1"
            )
        if self.base <= 1.0:
            raise UserError(f"position scheme rope: base={self.base}, must be above 1")
        self.scaled: Unscaled = made(SCALINGS, self.scaling)()

    def of_query(self, q: jax.Array, i: jax.Array) -> jax.Array:
        """See `PositionScheme.of_query`: q turned by its position."""
        return self.rotate(q, i)

    def of_key(self, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `PositionScheme.of_key`: k turned by its position."""
        return self.rotate(k, j)

    def rotate(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Rotates the first R channels of x [B,n,T,D] in pairs by the angles of positions [T] or
        [B,T] and multiplies them by the temperature of the scaling (mostly 1), and leaves the other
        channels as they are. Angles, sines and products in float32, the result in the dtype of x.
        """
        count = self.channels(x.shape[-1])
        frequencies = jnp.asarray(self.scaled.frequencies(self.base, count), inner_dtype(x))
        angle = positions.astype(frequencies.dtype)[..., None] * frequencies
        angle = angle[:, None] if positions.ndim == 2 else angle  # the same for all heads
        part = rotated(x[..., :count], angle, self.layout, self.scaled.temperature)
        return jnp.concatenate([part, x[..., count:]], axis=-1)

    def channels(self, width: int) -> int:
        """Computes how many channels R of a head of this width are rotated, `share` of it rounded;
        raises UserError if R is odd or 0.
        """
        count = round(self.share * width)
        if count % 2 or not count:
            near = " or ".join(str(n) for n in (count - 1, count + 1) if n > 1)
            raise UserError(
                f"position scheme rope: share={self.share} of a head width of {width} is {count},"
                f" but channels turn in pairs; choose share, width and heads so that it is {near or 2}"
            )
        return count


def rotated(
    x: jax.Array, angle: jax.Array, layout: Layout = "interleaved", factor: float = 1.0
) -> jax.Array:
    """Rotates pairs of channels of x [...,T,R], paired as `layout` says, by angles broadcastable to
    [...,T,R/2], and multiplies the result by `factor`. Products in float32, the result in the dtype
    of x.
    """
    count = x.shape[-1]
    cosine, sine = (factor * wave for wave in (jnp.cos(angle), jnp.sin(angle)))
    shape, axis = ((count // 2, 2), -1) if layout == "interleaved" else ((2, count // 2), -2)
    a, b = jnp.unstack(widened(x).reshape(*x.shape[:-1], *shape), axis=axis)
    pairs = jnp.stack([a * cosine - b * sine, b * cosine + a * sine], axis=axis)
    return pairs.reshape(x.shape).astype(x.dtype)
