"""A feed-forward and a norm of one's own.

maxout        y = max(x W_1 + b_1, x V_1 + c_1, ...) W_2 + b_2           the largest of `pieces` affine maps, for each hidden unit
l1_norm       y = x / (mean(|x|) + eps) * g

Sources: I. Goodfellow et al., "Maxout Networks", ICML 2013; E. Hoffer et al., "Norm matters", NeurIPS 2018 (the L1 norm).
"""

import flax.linen as nn
import jax.numpy as jnp

from attnlab.layers.dense import Dense, Dropout, widened
from attnlab.layers.feedforward import FeedForward
from attnlab.layers.norms import Norm


class Maxout(FeedForward):
    """The largest of several affine maps (Goodfellow et al. 2013); `hidden` and `dropout` are given by the system.

    Attributes:
      pieces: how many maps each hidden unit chooses from.
    """

    pieces: int = 2

    @nn.compact
    def __call__(self, x):
        units = Dense(self.hidden * self.pieces, name="inner")(x)
        largest = units.reshape(*x.shape[:-1], self.hidden, self.pieces).max(axis=-1)
        return Dense(x.shape[-1], name="outer")(Dropout(self.dropout)(largest))


class L1Norm(Norm):
    """x over its mean absolute value (Hoffer et al. 2018).

    Attributes:
      epsilon: added to the mean.
    """

    epsilon: float = 1e-6

    @nn.compact
    def __call__(self, x):
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        wide = widened(x)
        mean = jnp.abs(wide).mean(axis=-1, keepdims=True) + self.epsilon
        return (wide / mean * scale).astype(x.dtype)
