"""Squeeze-and-excitation (Hu et al. 2018), a gate for each channel from means over the map; and
CBAM's channel gate (Woo et al. 2018), which adds the largest numbers.

    z_p = pool_p over the places of x [B,C]                          p = mean; channel: mean and max
    g = sigmoid( sum_p W_2 relu(W_1 z_p + b_1) + b_2 ) [B,1,1,C]     W_1 [C,C/r], W_2 [C/r,C], shared by the pools
    y = x * g

C / r is rounded down, but not below 1. Parameters: 2 C^2 / r + C / r + C. The gate depends on the
set of places only, not on their order. Source: J. Hu, L. Shen, G. Sun, "Squeeze-and-Excitation Networks", CVPR
2018, equations 2 to 4, r = 16, on the residual branch before the sum; max in place of mean is their
ablation (section 6.2). Equation 3 has no biases, the released code has; `bias=false` leaves them out.
S. Woo, J. Park, J.-Y. Lee, I. S. Kweon, "CBAM", ECCV 2018, equation 2. Matrices start Glorot
uniform, biases at zero, so that g starts near 1/2.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.layers.dense import Dense
from attnlab.layers.gates.protocol import Factor, reduced, sigmoid
from attnlab.layers.precision import widened


class SqueezeExcitation(Factor):
    """g = sigmoid(W_2 relu(W_1 z + b_1) + b_2), z the means of the channels.

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

    Card: channels; Woo et al., CBAM, ECCV 2018; time N C + C^2 / r.
    """

    pools: tuple[Literal["mean", "max"], ...] = ("mean", "max")
