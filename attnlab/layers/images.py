"""Layers of images, channels last.

Axis letters: B batch, H height, W width, C channels, k kernel, s stride.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.layers.norms import Norm, told

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
        edge = (self.kernel // 2, self.kernel // 2)
        y: jax.Array = jax.lax.conv_general_dilated(
            x.astype(kernel.dtype),
            kernel,
            (self.stride, self.stride),
            (edge, edge),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return y


def normed(norm: Norm, x: jax.Array, valid: jax.Array | None) -> jax.Array:
    """x [B,H,W,C] through a norm over its channels; one that asks is told of the pixels of the rows
    that are images, `valid` [B], all if None.
    """
    if valid is None:
        return told(norm, x, jnp.ones(x.shape[:-1], bool))
    return told(norm, x, jnp.broadcast_to(valid[:, None, None], x.shape[:-1]))


def pooled(x: jax.Array, window: int, stride: int) -> jax.Array:
    """The largest number of each window of x [B,H,W,C], with (window - 1) // 2 pixels around the
    image that never are the largest.
    """
    edge = ((window - 1) // 2,) * 2
    y: jax.Array = nn.max_pool(x, (window, window), (stride, stride), (edge, edge))
    return y
