"""What gates do along the places of a map [B,H,W,C]: convolve, pool, enlarge. Sizes may be odd, and
1.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np


def convolved(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x [B,H,W,C] with kernel [k,k,C,D], k odd, zeros around the map: [B,H,W,D]."""
    dtype = jnp.result_type(x, kernel)
    return jax.lax.conv_general_dilated(
        x.astype(dtype),
        kernel.astype(dtype),
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def taps(length: int, kernel: int) -> int:
    """How many pairs of a place and a place under the kernel around it lie in a row of `length`."""
    side = kernel // 2
    return sum(min(length, i + side + 1) - max(0, i - side) for i in range(length))


def halved(x: jax.Array) -> jax.Array:
    """The largest of 3 x 3 places, every second place: [B,H,W,C] to [B,ceil(H/2),ceil(W/2),C]."""
    return nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))


def tiled(x: jax.Array, size: int) -> jax.Array:
    """The largest of each tile of size x size places; tiles at the end may be smaller:
    [B,ceil(H/size),ceil(W/size),C].
    """
    if size == 1:
        return x
    end = tuple((0, -length % size) for length in x.shape[1:3])
    return nn.max_pool(x, (size, size), (size, size), end)


def enlarged(x: jax.Array, height: int, width: int) -> jax.Array:
    """Bilinear interpolation of [B,h,w,C] to [B,height,width,C], corners on corners: place i of n
    is read from i (m - 1) / (n - 1) of m. Sizes must not shrink.
    """
    for axis, size in ((1, height), (2, width)):
        length = x.shape[axis]
        if length == size:
            continue
        at = np.arange(size) * ((length - 1) / (size - 1))
        low = np.minimum(np.floor(at).astype(np.int32), max(length - 2, 0))
        high = np.minimum(low + 1, length - 1)
        shape = [1, 1, 1, 1]
        shape[axis] = size
        part = jnp.asarray((at - low).reshape(shape), x.dtype)
        x = _taken(x, low, axis) * (1 - part) + _taken(x, high, axis) * part
    return x


def _taken(x: jax.Array, places: np.ndarray, axis: int) -> jax.Array:
    return jnp.take(x, places, axis, mode="clip")
