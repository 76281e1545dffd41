"""Positions of tokens on a grid, such as the patches of an image: a row and a column.

    sinusoidal_2d   x + [PE_{d/2}[row] ; PE_{d/2}[column]]                PE: `sinusoidal`
    rope_2d         the first D/2 channels of queries and keys turned by the row, the others by the column

A position stays one whole number, p = 2^15 row + column with -2^14 <= column < 2^14, so that views,
memories and kernels carry it as any other. A text on its own is the row 0 of a grid, p = column.

Source of the sines: N. Parmar et al., "Image Transformer", ICML 2018, section 3 (half of the
channels for the row, half for the column); of ViT with them: L. Beyer, X. Zhai, A. Kolesnikov,
"Better plain ViT baselines for ImageNet-1k", 2022. Of the rotation ("RoPE-Axial"): B. Heo, S. Park,
D. Han, S. Yun, "Rotary Position Embedding for Vision Transformer", ECCV 2024, section 3.2, base 100;
there the column turns the first channels. Cost: as `sinusoidal` and `rope`; no parameters.

Axis letters: B batch, H heads, T length, D head width, d model width.
"""

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.positions.absolute import sinusoid
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.positions.rope import rotated
from attnlab.errors import UserError
from attnlab.layers.dense import inner_dtype

STRIDE = 2**15  # between rows


class OnGrid(PositionScheme):
    """Base of the schemes that take a position apart into row and column. Only a slot that knows
    them has such a scheme (`Need.places`).
    """

    on_grid = True


def on_grid(rows: int, columns: int) -> np.ndarray:
    """Returns the positions of a grid of tokens, row by row, row * STRIDE + column: int32 [rows *
    columns]; raises UserError if the grid is too large.

    Raises:
      UserError: more rows or columns than a number holds.
    """
    if max(rows, columns) > STRIDE // 2:
        raise UserError(
            f"a grid of {rows} x {columns} tokens; positions on a grid end at {STRIDE // 2}"
        )
    grid = np.arange(rows, dtype=np.int32)[:, None] * STRIDE + np.arange(columns, dtype=np.int32)
    return grid.reshape(-1)


def row_and_column(positions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The two of positions [...]."""
    row = (positions + STRIDE // 2) // STRIDE
    return row, positions - row * STRIDE


class Sinusoidal2D(OnGrid):
    """Fixed sines and cosines of row and column, no parameters, any grid.

    Attributes:
      base: the ratio of the longest to the shortest wavelength.

    Card: absolute; Parmar et al., Image Transformer, ICML 2018; time T d.
    """

    base: float = 10000.0

    hooks = frozenset({"embedding"})

    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Adds to x [B,T,d] the sinusoids of the row (first half of the channels) and the column
        (second half) that `positions` [T] or [B,T] stand for in a grid; raises UserError for an odd
        width d. See `PositionScheme.embed`; computed in the inner precision, added in the dtype of
        x.

        Raises:
          UserError: an odd width.
        """
        half, odd = divmod(x.shape[-1], 2)
        if odd:
            raise UserError(
                f"position scheme sinusoidal_2d: a width of {x.shape[-1]} has no halves; take"
                f" {x.shape[-1] + 1}"
            )
        sines = [
            sinusoid(index, half, self.base, inner_dtype(x)) for index in row_and_column(positions)
        ]
        return x + jnp.concatenate(sines, axis=-1).astype(x.dtype)


class Rope2D(OnGrid):
    """Queries and keys rotated by their row and their column.

    Attributes:
      base: the ratio of the longest to the shortest wavelength of each, nearly.

    Card: rotary; Heo et al., Rotary Position Embedding for ViT, ECCV 2024; time T D.
    """

    base: float = 100.0

    hooks = frozenset({"query_key"})

    def of_query(self, q: jax.Array, i: jax.Array) -> jax.Array:
        """See `PositionScheme.of_query`."""
        return self.rotate(q, i)

    def of_key(self, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `PositionScheme.of_key`."""
        return self.rotate(k, j)

    def rotate(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Rotates pairs of channels of x [B,n,T,D], one half of them by the row and the other by
        the column that positions [T] or [B,T] stand for; raises UserError unless D is a multiple of
        4. Angles, sines and products in float32, the result in the dtype of x.

        Raises:
          UserError: D is no multiple of 4.
        """
        count = self.channels(x.shape[-1]) // 4
        frequencies = jnp.asarray(self.base ** -(np.arange(count) / count), inner_dtype(x))
        pair = jnp.stack(row_and_column(positions), axis=-1).astype(frequencies.dtype)
        angle = (pair[..., None] * frequencies).reshape(*positions.shape, 2 * count)
        return rotated(x, angle[:, None] if positions.ndim == 2 else angle)

    def channels(self, width: int) -> int:
        """Returns the head width, all of which is rotated; raises UserError for a base of at most
        1, or a width that is not a multiple of 4.
        """
        if self.base <= 1.0:
            raise UserError(f"position scheme rope_2d: base={self.base}, must be above 1")
        if width % 4 or not width:
            raise UserError(
                f"position scheme rope_2d: a head width of {width}, but row and column each turn"
                f" channels in pairs; choose width and heads so that it is {-(-width // 4) * 4}"
            )
        return width
