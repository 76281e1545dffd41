"""Heads: vectors cut into equal parts, and put together again.

Axis letters: B batch, H heads, T tokens, D head width.
"""

from __future__ import annotations

import jax


def split(x: jax.Array, heads: int) -> jax.Array:
    """[B,T,H*D] to heads first, [B,H,T,D], in which form products are fast."""
    return x.reshape(*x.shape[:2], heads, x.shape[-1] // heads).transpose(0, 2, 1, 3)


def joined(x: jax.Array) -> jax.Array:
    """[B,H,T,D] to [B,T,H*D]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])
