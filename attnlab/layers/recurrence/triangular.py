"""The inverse of I + L, where L is strictly lower triangular: blocks by substitution, then pairs of
blocks by products.

    [[A, 0], [B, D]]^-1 = [[A^-1, 0], [-D^-1 B A^-1, D^-1]]

Squaring, prod_m (I + (-L)^{2^m}), is the same in exact arithmetic and useless in rounded: with equal
unit keys the powers reach 1e17 in a chunk of 64 while the inverse is bounded by 1.

Axis letters: C rows.
"""

import jax
import jax.numpy as jnp

SUBSTITUTED = 8  # rows of the blocks that are inverted by substitution
EXACT = jax.lax.Precision.HIGHEST  # the inverse would amplify the errors of shorter formats


@jax.custom_jvp
def inverse(lower: jax.Array) -> jax.Array:
    """Computes (I + L)^-1 of strictly lower triangular L [..., C,C], by blocks of doubling size."""
    length = lower.shape[-1]
    size = 1 << (length - 1).bit_length()
    padding = size - length
    filled = jnp.pad(lower, [(0, 0)] * (lower.ndim - 2) + [(0, padding)] * 2) if padding else lower
    half = min(SUBSTITUTED, size)
    blocks = _substituted(_diagonal(filled, half))
    while half < size:
        below = _diagonal(filled, 2 * half)[..., half:, :half]
        first, second = blocks[..., 0::2, :, :], blocks[..., 1::2, :, :]
        below = -_product(second, _product(below, first))
        top = jnp.concatenate([first, jnp.zeros_like(below)], axis=-1)
        blocks = jnp.concatenate([top, jnp.concatenate([below, second], axis=-1)], axis=-2)
        half *= 2
    return blocks[..., 0, :length, :length]


@inverse.defjvp
def _slope(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    """d M = -M dL M; substitution need not be differentiated."""
    inverted = inverse(*primals)
    return inverted, -_product(inverted, _product(tangents[0], inverted))


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=EXACT)


def _diagonal(x: jax.Array, size: int) -> jax.Array:
    """The blocks of `size` rows on the diagonal of [..., C,C]: [..., C/size,size,size]."""
    count = x.shape[-1] // size
    cut = x.reshape(*x.shape[:-2], count, size, count, size)
    return jnp.moveaxis(jnp.diagonal(cut, axis1=-4, axis2=-2), -1, -3)


def _substituted(lower: jax.Array) -> jax.Array:
    """Computes (I + L)^-1 = M [..., C,C] of strictly lower triangular L [..., C,C], row by row for
    all matrices at once, with row M_i = e_i - sum_{j<i} L_ij M_j.
    """
    size = lower.shape[-1]
    blocks = jnp.moveaxis(lower.reshape(-1, size, size), 0, -1)
    rows = [jnp.zeros_like(blocks[0]).at[0].set(1.0)]
    for i in range(1, size):
        solved = jnp.stack(rows)
        row = -(blocks[i, :i, None] * solved).sum(axis=0)
        rows.append(row.at[i].add(1.0))
    return jnp.moveaxis(jnp.stack(rows), -1, 0).reshape(lower.shape)
