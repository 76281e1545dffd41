"""Efficient channel attention (Wang et al. 2020): the gate of a channel sees its neighbours only.

    z = mean over the places of x [B,C]
    g_c = sigmoid( sum_j w_j z_{c+j} ),  j = -(k-1)/2 .. (k-1)/2       w [k], zeros beyond the first and last channel
    k = | log2(C) / 2 + 1/2 |_odd                                      the nearest odd number; of two the larger
    y = x * g

The same k weights serve all channels: k parameters, no reduction. k = 3, 5, 5, 5 for C = 64, 128,
256, 512. Source: Q. Wang, B. Wu, P. Zhu, P. Li, W. Zuo, Q. Hu, "ECA-Net: Efficient Channel
Attention for Deep Convolutional Neural Networks", CVPR 2020, equations 9 and 12 with gamma = 2 and
b = 1; of two odd numbers equally near the released code takes the larger. ResNet-50 then gets 86
parameters; the abstract says 80, which is 5 for each of its 16 blocks. w starts N(0, 1 / k); the
paper does not say.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.layers.gates.protocol import Factor, odd, sigmoid
from attnlab.layers.precision import widened


class EfficientChannel(Factor):
    """g_c = sigmoid(sum_j w_j z_{c+j}), z the means of the channels.

    Attributes:
      kernel: k, odd; 0 for the formula above.

    Card: channels; Wang et al., ECA-Net, CVPR 2020; time N C + k C.
    """

    kernel: int = 0

    @nn.nowrap
    def size(self, channels: int) -> int:
        """k for C channels."""
        return odd(self, self.kernel or adaptive(channels))

    @nn.compact
    def factor(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """Computes the gate g [B,1,1,C] of x [B,H,W,C]: sigmoid of a one-dimensional convolution
        along the channels of their means over pixels; `valid` is not used; raises `UserError` for
        an even or negative kernel. See `Factor.factor`.
        """
        channels = x.shape[-1]
        size = self.size(channels)
        weights = self.param("kernel", nn.initializers.normal(size**-0.5), (size,))
        side = size // 2
        z = jnp.pad(widened(x).mean(axis=(1, 2)), ((0, 0), (side, side)))
        logits = sum(weights[j] * z[:, j : j + channels] for j in range(size))
        return sigmoid(jnp.asarray(logits))[:, None, None]


def adaptive(channels: int) -> int:
    """k = |log2(C) / 2 + 1/2|_odd of ECA-Net, of two odd numbers equally near the larger."""
    return 2 * math.floor((math.log2(channels) + 1.0) / 4.0) + 1
