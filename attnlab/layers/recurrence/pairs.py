"""Products of queries and keys within a chunk, under gates:

    A_ij = sum_d x_id y_jd e^{c_id - b_jd}       for j <= i (strict: j < i), else 0

b are running sums of log gates g <= 0 within the chunk, and c is b, or b - g where x looks at the
state before the gate of its step. For the pairs kept, c_i - b_j <= 0, so that no exponential is
above 1; e^{-b_j} alone could overflow. What is masked is masked before `exp`: otherwise 0 * inf
gives gradients that are NaN.

    no gates, one gate a head     one product, times a matrix [C,C] of decays
    a gate for each channel       blocks of `DIRECT` tokens by the sum itself; the pairs of two neighbouring blocks by a product through the
                                  last row m of the first, (x_i e^{c_i - b_m}) . (y_j e^{b_m - b_j}); then blocks of twice the size, and
                                  so on

Source: S. Yang, B. Wang, Y. Shen, R. Panda, Y. Kim, "Gated Linear Attention Transformers with
Hardware-Efficient Training", ICML 2024, section 4.3 (two levels of blocks; here each level is a
half of the next, so that exponentials are log C for each number, not C / 16).

Axis letters: C tokens of a chunk, D channels.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

DIRECT = 4  # tokens of the smallest blocks


def pairs(
    x: jax.Array,
    y: jax.Array,
    b: jax.Array | None,
    c: jax.Array | None = None,
    strict: bool = False,
    precision: Any = None,
) -> jax.Array:
    """Computes the lower triangular matrix A [..., C,C], A_ij = sum_d x_id y_jd e^{c_id - b_jd} for
    j <= i (`strict`: j < i), of x and y [..., C,D] of C tokens under the running sums b and c of
    their log gates (b None: no gates; c None: b).

    Args:
      x, y: [..., C,D].
      b: [..., C,1] for one gate, [..., C,D], or None for no gates.
      c: likewise; None for b.
      strict: j < i only.
      precision: of the products, see `jax.lax.Precision`.
    """
    c = b if c is None else c
    if b is None or c is None or b.shape[-1] == 1:
        products = jnp.matmul(x, y.swapaxes(-1, -2), precision=precision)
        mask = np.tri(x.shape[-2], k=-1 if strict else 0, dtype=bool)
        if b is None or c is None:
            return jnp.where(mask, products, 0.0)
        return products * _decays(c[..., 0], b[..., 0], mask)
    return _by_halves(x, y, b, c, strict, precision)


def _decays(c: jax.Array, b: jax.Array, mask: np.ndarray) -> jax.Array:
    """e^{c_i - b_j} where kept, else 0: [..., C] to [..., C,C]."""
    difference = c[..., :, None] - b[..., None, :]
    return jnp.where(mask, jnp.exp(jnp.where(mask, difference, 0.0)), 0.0)


def _by_halves(
    x: jax.Array, y: jax.Array, b: jax.Array, c: jax.Array, strict: bool, precision: Any
) -> jax.Array:
    """Computes the matrix [..., C,C] of `pairs`, with its arguments and a gate for each channel, by
    halving chunks, which are padded to a power of two: products of matrices below the diagonal
    blocks, `_direct` in them.
    """
    length = x.shape[-2]
    size = 1 << (length - 1).bit_length()
    x, y = (_filled(array, size, "constant") for array in (x, y))
    b, c = (_filled(array, size, "edge") for array in (b, c))
    half = min(DIRECT, size)
    blocks = _direct(*(_blocks(array, half) for array in (x, y, b, c)), strict=strict)
    while half < size:
        (_, lower_x), (upper_y, _), (upper_b, _), (_, lower_c) = (
            _halves(_blocks(array, 2 * half)) for array in (x, y, b, c)
        )
        boundary = upper_b[..., -1:, :]
        lower_x = lower_x * jnp.exp(lower_c - boundary)
        upper_y = upper_y * jnp.exp(boundary - upper_b)
        below = jnp.matmul(lower_x, upper_y.swapaxes(-1, -2), precision=precision)
        first, second = blocks[..., 0::2, :, :], blocks[..., 1::2, :, :]
        top = jnp.concatenate([first, jnp.zeros_like(below)], axis=-1)
        blocks = jnp.concatenate([top, jnp.concatenate([below, second], axis=-1)], axis=-2)
        half *= 2
    return blocks[..., 0, :length, :length]


def _direct(x: jax.Array, y: jax.Array, b: jax.Array, c: jax.Array, *, strict: bool) -> jax.Array:
    """Computes the matrix [..., C,C] of `pairs`, with its arguments and a gate for each channel,
    diagonal by diagonal: sums over D, with no array [..., C,C,D].
    """
    size, total = x.shape[-2], jnp.zeros(())
    for offset in range(1 if strict else 0, size):
        later, first = slice(offset, None), slice(0, size - offset)
        products = x[..., later, :] * y[..., first, :]
        sums = (products * jnp.exp(c[..., later, :] - b[..., first, :])).sum(axis=-1)
        sums = jnp.pad(sums, [(0, 0)] * (sums.ndim - 1) + [(offset, 0)])
        total = total + sums[..., None] * np.eye(size, k=-offset, dtype=sums.dtype)
    rows = jnp.broadcast_shapes(*(array.shape[:-1] for array in (x, y, b, c)))
    return jnp.broadcast_to(total, (*rows, size))


def _blocks(x: jax.Array, size: int) -> jax.Array:
    """[..., C,D] to [..., C/size,size,D]."""
    return x.reshape(*x.shape[:-2], x.shape[-2] // size, size, x.shape[-1])


def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    half = x.shape[-2] // 2
    return x[..., :half, :], x[..., half:, :]


def _filled(x: jax.Array, size: int, mode: str) -> jax.Array:
    """Pads [..., C,D] to [..., size,D] in the mode of `jnp.pad`."""
    padding = size - x.shape[-2]
    return jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, padding), (0, 0)], mode=mode) if padding else x
