"""Gates from pooled maps: means or largest numbers of x, over places, channels, rows or columns, become
factors of x through a small layer and a sigmoid.

    se, channel   a factor for each channel, from a hidden layer over all channels       Hu et al. 2018; Woo et al. 2018
    eca           a factor for each channel, from its neighbours                         Wang et al. 2020
    spatial       a factor for each place                                                Woo et al. 2018
    cbam          `channel`, then `spatial`                                              Woo et al. 2018
    coordinate    a factor for each row times one for each column, of each channel       Hou et al. 2021

The class of each has its formula, cost and source. Axis letters: see `protocol`.
"""

import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.config.registry import Part, made
from attnlab.errors import UserError, at_least
from attnlab.layers import NORMS
from attnlab.layers.dense import Dense, widened
from attnlab.layers.gates import GATES
from attnlab.layers.gates.protocol import Factor, Gate, odd, reduced, sigmoid
from attnlab.layers.images import convolved, normed


class SqueezeExcitation(Factor):
    """g = sigmoid(W_2 relu(W_1 z + b_1) + b_2), z the means of the channels.

        z_p = pool_p over the places of x [B,C]                          p = mean; channel: mean and max
        g = sigmoid( sum_p W_2 relu(W_1 z_p + b_1) + b_2 ) [B,1,1,C]     W_1 [C,C/r], W_2 [C/r,C], shared by the pools
        y = x * g

    C / r is rounded down, but not below 1. The gate depends on the set of places only, not on their
    order. Matrices start Glorot uniform, biases at zero, so that g starts near 1/2. Cost: 4 C^2 / r
    FLOPs for each image and pool, and the pools. Parameters: 2 C^2 / r + C / r + C. Source: J. Hu,
    L. Shen, G. Sun, "Squeeze-and-Excitation Networks", CVPR 2018, equations 2 to 4, r = 16, on the
    residual branch before the sum; max in place of mean is their ablation (section 6.2). Equation 3
    has no biases, the released code has; `bias=false` leaves them out.

    Attributes:
      reduction: r.
      bias: whether b_1 and b_2 exist.
      pools: what z is, "mean" or "max" over the map; with several the logits are added, b_2 for
        each of them.

    Card: channels; Hu et al., Squeeze-and-Excitation Networks, CVPR 2018; time N C + C^2 / r.
    """

    reduction: int = 16
    bias: bool = True
    pools: tuple[Literal["mean", "max"], ...] = ("mean",)

    @nn.compact
    def factor(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """Computes the gate g [B,1,1,C] of x [B,H,W,C]: sigmoid of an MLP with one hidden layer on
        the channels' mean or maximum over pixels (of the sum of both results for both); raises
        `UserError` for other `pools` or a reduction below 1; `valid` is not used. See
        `Factor.factor`.
        """
        channels = x.shape[-1]
        inner = Dense(reduced(self, channels, self.reduction), self.bias, name="inner")
        outer = Dense(channels, self.bias, name="outer")
        if not self.pools or not set(self.pools) <= {"mean", "max"}:
            raise UserError(
                f"gate {type(self).__name__}: pools={self.pools}: expected 'mean', 'max' or both"
            )
        pooled = (getattr(widened(x), pool)(axis=(1, 2)).astype(x.dtype) for pool in self.pools)
        logits = jnp.stack([widened(outer(nn.relu(inner(z)))) for z in pooled]).sum(axis=0)
        return sigmoid(logits)[:, None, None]


class Channel(SqueezeExcitation):
    """g = sigmoid(MLP(mean) + MLP(max)), CBAM's channel gate. The fields are those of
    `SqueezeExcitation`.

        z_p = pool_p over the places of x [B,C]                          p = mean; channel: mean and max
        g = sigmoid( sum_p W_2 relu(W_1 z_p + b_1) + b_2 ) [B,1,1,C]     W_1 [C,C/r], W_2 [C/r,C], shared by the pools
        y = x * g

    Cost: that of `SqueezeExcitation`, as are the parameters. Source: S. Woo, J. Park, J.-Y. Lee,
    I. S. Kweon, "CBAM: Convolutional Block Attention Module", ECCV 2018, equation 2.

    Card: channels; Woo et al., CBAM, ECCV 2018; time N C + C^2 / r.
    """

    pools: tuple[Literal["mean", "max"], ...] = ("mean", "max")


class EfficientChannel(Factor):
    """g_c = sigmoid(sum_j w_j z_{c+j}), z the means of the channels.

        z = mean over the places of x [B,C]
        g_c = sigmoid( sum_j w_j z_{c+j} ),  j = -(k-1)/2 .. (k-1)/2       w [k], zeros beyond the first and last channel
        k = | log2(C) / 2 + 1/2 |_odd                                      the nearest odd number; of two the larger
        y = x * g

    The gate of a channel sees its neighbours only, and the same k weights serve all channels: k
    parameters, no reduction. k = 3, 5, 5, 5 for C = 64, 128, 256, 512. w starts N(0, 1 / k); the
    paper does not say. Cost: 2 k C FLOPs for each image, and the means. Source: Q. Wang, B. Wu, P.
    Zhu, P. Li, W. Zuo, Q. Hu, "ECA-Net: Efficient Channel Attention for Deep Convolutional Neural
    Networks", CVPR 2020, equations 9 and 12 with gamma = 2 and b = 1; of two odd numbers equally near
    the released code takes the larger. ResNet-50 then gets 86 parameters; the abstract says 80, which
    is 5 for each of its 16 blocks.

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


class Spatial(Factor):
    """g = sigmoid(norm(w * [mean_c x ; max_c x])), a gate for each place.

        y = x * g,     g = sigmoid( norm( w * [mean_c x ; max_c x] ) )     w [k,k,2,1], zeros around the map

    g is [B,H,W,1]. The convolution has no bias, as in the released code. w starts N(0, 1 / (2
    k^2)), cut at two deviations. Cost: 4 k^2 FLOPs for each place, and the pools. Parameters: 2
    k^2, 98 by default. Source: S. Woo, J. Park, J.-Y. Lee, I. S. Kweon, "CBAM: Convolutional Block
    Attention Module", ECCV 2018, equation 3, k = 7. The paper has no norm; the released code has a
    batch norm here (`normalisation=batch_norm`), whose scale its training script starts at zero;
    ours starts at one.

    Attributes:
      kernel: k, the height and width of the window of its convolution, odd.
      normalisation: the norm after the convolution.

    Card: places; Woo et al., CBAM, ECCV 2018; time N C + N k^2.
    """

    kernel: int = 7
    normalisation: Part = "none"

    parts = {"normalisation": NORMS}

    @nn.compact
    def factor(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """Computes the gate g [B,H,W,1] of x [B,H,W,C] for each pixel: the mean and the maximum
        over channels, convolved, normalised (`valid` [B]: which images are real) and through a
        sigmoid; raises `UserError` unless the kernel is odd and above 0. See `Factor.factor`.
        """
        size, wide = odd(self, self.kernel), widened(x)
        pooled = jnp.stack([wide.mean(axis=-1), wide.max(axis=-1)], axis=-1).astype(x.dtype)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (size, size, 2, 1))
        norm = made(NORMS, self.normalisation)(name="normalisation")
        return sigmoid(normed(norm, convolved(pooled, kernel), valid))


class Cbam(Gate):
    """Two gates, one after the other.

        x' = x * g_c,     g_c = sigmoid( MLP(mean_hw x) + MLP(max_hw x) )         `channel`
        y = x' * g_s,     g_s = sigmoid( norm( w * [mean_c x' ; max_c x'] ) )     `spatial`; w [k,k,2,1], zeros around the map

    By default a gate for each channel, then one for each place. Cost: that of the two gates, as are
    the parameters. Source: S. Woo, J. Park, J.-Y. Lee, I. S. Kweon, "CBAM: Convolutional Block
    Attention Module", ECCV 2018, equations 1 to 3; channels first, which their table 3 finds best.

    Attributes:
      first: the gate on x.
      second: the gate on its result.

    Card: channels and places; Woo et al., CBAM, ECCV 2018; time N C + C^2 / r + N k^2.
    """

    first: Part = "channel"
    second: Part = "spatial"

    parts = {"first": GATES, "second": GATES}

    @nn.compact
    def __call__(self, x: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """See `Gate.__call__`."""
        x = made(GATES, self.first)(name="first")(x, valid)
        y: jax.Array = made(GATES, self.second)(name="second")(x, valid)
        return y


class Coordinate(Factor):
    """g_ijc = g^h_ic g^w_jc, from means along columns and rows.

        z^h = mean over the columns of x [B,H,C],   z^w = mean over the rows [B,W,C]
        f = hard_swish( norm( [z^h ; z^w] W_1 + b_1 ) ) [B,H+W,m]          m = max(C / r, least)
        g^h = sigmoid(f^h W_h + b_h) [B,H,C],   g^w = sigmoid(f^w W_w + b_w) [B,W,C]
        y_ijc = x_ijc g^h_ic g^w_jc

        hard_swish(x) = x min(max(x + 3, 0), 6) / 6

    C / r is rounded down, but not below 1. Cost: 4 (H + W) m C FLOPs for each image, and the means.
    Source: Q. Hou, D. Zhou, J. Feng, "Coordinate Attention for Efficient Mobile Network Design",
    CVPR 2021, equations 4 to 8; norm, hard_swish, biases and the bound of 8 channels are those of
    the released code, the norm also of figure 2. `least=0` is the formula of the paper.

    Attributes:
      reduction: r.
      least: lower bound of m.
      normalisation: the norm of the hidden channels.

    Card: rows and columns; Hou et al., Coordinate Attention, CVPR 2021; time N C + C^2 / r.
    """

    reduction: int = 32
    least: int = 8
    normalisation: Part = "batch_norm"

    parts = {"normalisation": NORMS}

    @nn.nowrap
    def hidden(self, channels: int) -> int:
        """m for C channels."""
        at_least(0, "gate Coordinate", least=self.least)
        return max(self.least, reduced(self, channels, self.reduction))

    @nn.compact
    def factor(self, x: jax.Array, valid: jax.Array | None) -> jax.Array:
        """Computes the gate g [B,H,W,C] of x [B,H,W,C] as the product of a gate for each row and
        one for each column, made of the means along rows and columns; `valid` [B]: which images are
        real, for the norm inside; raises `UserError` for fields below their minimum. See
        `Factor.factor`.
        """
        height, channels, wide = x.shape[1], x.shape[-1], widened(x)
        means = jnp.concatenate([wide.mean(axis=2), wide.mean(axis=1)], axis=1).astype(x.dtype)
        f = Dense(self.hidden(channels), name="inner")(means)
        norm = made(NORMS, self.normalisation)(name="normalisation")
        f = jax.nn.hard_swish(normed(norm, f, valid))
        rows = sigmoid(Dense(channels, name="rows")(f[:, :height]))
        columns = sigmoid(Dense(channels, name="columns")(f[:, height:]))
        return rows[:, :, None] * columns[:, None]
