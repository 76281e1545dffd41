"""Position-wise layers of the Transformer. Axis letters: B batch, T time, d model width, F hidden
width.
"""

from __future__ import annotations

import flax.linen as nn
import jax

from attnlab.layers.dense import Dense, Dropout


class FeedForward(nn.Module):
    """y = relu(x W_1 + b_1) W_2 + b_2, at each position alone (Vaswani et al. 2017, equation 2).

    Attributes:
      hidden: F.
      dropout: rate after the rectifier (as in the authors' code; the paper does not mention it).
    """

    hidden: int
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B,T,d] to [B,T,d]."""
        hidden = Dropout(self.dropout)(nn.relu(Dense(self.hidden, name="inner")(x)))
        return Dense(x.shape[-1], name="outer")(hidden)


def layer_norm(name: str | None = None) -> nn.LayerNorm:
    """LayerNorm, (x - mean) / sqrt(variance + 1e-6) * g + b (Ba, Kiros, Hinton 2016), statistics in
    float32.

    The variance is computed about the mean: the faster E[x^2] - E[x]^2 loses digits where the mean
    is large.
    """
    return nn.LayerNorm(epsilon=1e-6, use_fast_variance=False, param_dtype=float, name=name)
