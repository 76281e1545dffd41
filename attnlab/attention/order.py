"""Sums along the keys of a look in the order of their positions, for parts that look at what stands
between a key and its query.

Slots usually stand in this order, and nothing is moved. In a memory whose tokens have positions of
their own (a shard, a permuted source) they may not. Axis letters: B batch, Tk keys.
"""

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.view import Where


def in_order(x: jax.Array, keys: Where | None) -> tuple[jax.Array, jax.Array | None]:
    """Sorts the last axis of x [B,...,Tk] by the positions `keys` [B,Tk], and returns it with the
    inverse permutation for `out_of_order`; returns x itself and None if `keys` is not of that shape
    (None, or first positions), so that positions rise anyway.
    """
    if keys is None or np.ndim(keys) < 2:
        return x, None
    order = jnp.argsort(jnp.asarray(keys), axis=-1)
    order = order.reshape(len(order), *(1,) * (x.ndim - 2), x.shape[-1])
    return _permuted(x, order), jnp.argsort(order, axis=-1)


def out_of_order(x: jax.Array, inverse: jax.Array | None) -> jax.Array:
    """Restores the order of x before `in_order`, which gave the permutation `inverse`, None where
    it moved nothing.
    """
    return x if inverse is None else _permuted(x, inverse)


def after_each(x: jax.Array) -> jax.Array:
    """Computes for each number of x the sum of those behind it on the last axis, without itself."""
    total = jnp.flip(jnp.cumsum(jnp.flip(x, -1), axis=-1), -1)
    return jnp.concatenate([total[..., 1:], jnp.zeros_like(total[..., :1])], axis=-1)


def _permuted(x: jax.Array, order: jax.Array) -> jax.Array:
    return jnp.take_along_axis(x, jnp.broadcast_to(order, x.shape), axis=-1)
