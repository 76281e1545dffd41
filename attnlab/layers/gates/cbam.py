"""CBAM (Woo et al. 2018): a gate for each channel, then a gate for each place.

    x' = x * g_c,     g_c = sigmoid( MLP(mean_hw x) + MLP(max_hw x) )         `channel`, see squeeze_excitation.py
    y = x' * g_s,     g_s = sigmoid( norm( w * [mean_c x' ; max_c x'] ) )     `spatial`; w [k,k,2,1], zeros around the map

g_s is [B,H,W,1]. Parameters of `spatial`: 2 k^2, 98 by default. Source: S. Woo, J. Park, J.-Y. Lee,
I. S. Kweon, "CBAM: Convolutional Block Attention Module", ECCV 2018, equations 1 to 3, k = 7;
channels first, which their table 3 finds best. The paper has no norm; the released code has a batch
norm here (`normalisation=batch_norm`), whose scale its training script starts at zero; ours starts
at one. The convolution has no bias, as there. w starts N(0, 1 / (2 k^2)), cut at two deviations.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.config.registry import Part, made
from attnlab.layers import NORMS
from attnlab.layers.gates import GATES
from attnlab.layers.gates.protocol import Factor, Gate, odd, sigmoid
from attnlab.layers.images import convolved, normed
from attnlab.layers.precision import widened


class Spatial(Factor):
    """g = sigmoid(norm(w * [mean_c x ; max_c x])), a gate for each place.

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
