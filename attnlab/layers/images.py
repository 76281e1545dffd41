"""Layers of images, channels last.

Axis letters: B batch, H height, W width, C channels, k kernel, s stride.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.errors import UserError
from attnlab.layers.dense import matmul
from attnlab.layers.norms import Norm, apply_norm

HE = nn.initializers.variance_scaling(2.0, "fan_out", "normal")
"""N(0, 2 / (k k features)) (He et al. 2015, backward)."""


class Convolution(nn.Module):
    """y_{ij} = sum_{uv} x_{si+u-p,sj+v-p} W_{uv}, with p = (k - 1) / 2 zeros around the image and no
    bias; computed in the dtype of the kernel.

    Attributes:
      features: channels of y.
      kernel: k, odd.
      stride: s.
    """

    features: int
    kernel: int = 3
    stride: int = 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B,H,W,C] to [B,ceil(H/s),ceil(W/s),features]."""
        size = (self.kernel, self.kernel, x.shape[-1], self.features)
        kernel = jnp.asarray(self.param("kernel", HE, size, float))
        return convolved(x.astype(kernel.dtype), kernel, self.stride)


class Patches(nn.Module):
    """y_{ij} = sum_{uv} x_{Pi+u,Pj+v} W_{uv} + b: a vector of each patch, no two of which overlap
    (Dosovitskiy et al. 2021, equation 1); computed in the dtype of the kernel.

    Attributes:
      features: channels of y.
      size: P, pixels of a side.
    """

    features: int
    size: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Projects each patch of P x P pixels of images x [B,H,W,C] to a vector by one linear
        layer, to [B,H/P,W/P,features]; raises `UserError` unless P divides H and W.

        Raises:
          UserError: a size below 1, or one that does not divide H and W.
        """
        size, (height, width, channels) = self.size, x.shape[1:]
        if size < 1 or height % size or width % size or not height * width:
            sides = math.gcd(height, width)
            near = [side for side in range(1, sides + 1) if sides % side == 0][-4:]
            raise UserError(
                f"patch={size}: images of {height} x {width} pixels are not made of patches of"
                f" {size} x {size}; patch could be {' or '.join(map(str, near)) or 'any'}"
            )
        shape = (size, size, channels, self.features)
        kernel = jnp.asarray(self.param("kernel", nn.initializers.lecun_normal(), shape, float))
        bias = jnp.asarray(self.param("bias", nn.initializers.zeros, (self.features,), float))
        rows, columns = height // size, width // size
        cut = x.astype(kernel.dtype).reshape(len(x), rows, size, columns, size, channels)
        patches = cut.transpose(0, 1, 3, 2, 4, 5).reshape(len(x), rows, columns, -1)
        return matmul(patches, kernel.reshape(-1, self.features)) + bias


def convolved(x: jax.Array, kernel: jax.Array, stride: int = 1) -> jax.Array:
    """Convolves x [B,H,W,C] with kernel [k,k,C,D], k odd, with zeros around the image and stride s:
    [B,ceil(H/s),ceil(W/s),D].
    """
    dtype, edge = jnp.result_type(x, kernel), (kernel.shape[0] // 2,) * 2
    y: jax.Array = jax.lax.conv_general_dilated(
        x.astype(dtype),
        kernel.astype(dtype),
        (stride, stride),
        (edge, edge),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return y


def normed(norm: Norm, x: jax.Array, valid: jax.Array | None) -> jax.Array:
    """Computes a norm of x [B,...,C] over its channels; `valid` [B]: which rows are images and not
    padding, all if None, for norms that need it.
    """
    real = jnp.ones(len(x), bool) if valid is None else valid
    real = real.reshape(-1, *[1] * (x.ndim - 2))
    return apply_norm(norm, x, jnp.broadcast_to(real, x.shape[:-1]))


def pooled(x: jax.Array, window: int, stride: int) -> jax.Array:
    """Computes the largest number of each window x window pixels of x [B,H,W,C], at every `stride`-th
    place, with (window - 1) // 2 pixels around the image that never are the largest.
    """
    edge = ((window - 1) // 2,) * 2
    y: jax.Array = nn.max_pool(x, (window, window), (stride, stride), (edge, edge))
    return y


def tiled(x: jax.Array, size: int) -> jax.Array:
    """Computes the largest number of each tile of size x size places of x [B,H,W,C]; tiles at the end
    may be smaller: [B,ceil(H/size),ceil(W/size),C].
    """
    if size == 1:
        return x
    end = tuple((0, -length % size) for length in x.shape[1:3])
    return nn.max_pool(x, (size, size), (size, size), end)


def enlarged(x: jax.Array, height: int, width: int) -> jax.Array:
    """Interpolates x [B,h,w,C] bilinearly to the larger size [B,height,width,C], corners on
    corners: pixel i of n is read from i (m - 1) / (n - 1) of m. Sizes must not shrink.
    """
    for axis, size in ((1, height), (2, width)):
        length = x.shape[axis]
        if length == size:
            continue
        positions = np.arange(size) * ((length - 1) / (size - 1))
        low = np.minimum(np.floor(positions).astype(np.int32), max(length - 2, 0))
        high = np.minimum(low + 1, length - 1)
        shape = [1, 1, 1, 1]
        shape[axis] = size
        part = jnp.asarray((positions - low).reshape(shape), x.dtype)
        x = _taken(x, low, axis) * (1 - part) + _taken(x, high, axis) * part
    return x


def _taken(x: jax.Array, places: np.ndarray, axis: int) -> jax.Array:
    return jnp.take(x, places, axis, mode="clip")
