"""Norms over the last axis: x [..., d] to [..., d].

    layer_norm           (x - mean) / sqrt(variance + eps) * g + b       g from 1, b from 0; the variance about the mean, over d
    rms_norm             x / sqrt(mean(x^2) + eps) * g                   g from 1
    rms_norm_plus_one    x / sqrt(mean(x^2) + eps) * (1 + g)             g from 0, so that weight decay pulls towards 1
    scale_norm           g x / max(|x|, eps)                             one number g from sqrt(d)
    dynamic_tanh         g * tanh(a x) + b                               one number a from 0.5, g from 1, b from 0; no statistics
    none                 x

g and b have d numbers unless said otherwise. Everything is computed in the inner precision (see
`precision`) and rounded once, at the end. Published models differ in eps: 1e-5 (GPT-2, BART, Llama
2 and 3), 1e-6 (T5, Llama's default), 1e-12 (BERT).

Source: J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", 2016; B. Zhang, R. Sennrich,
"Root Mean Square Layer Normalization", NeurIPS 2019; 1 + g as in the released code of Gemma (2024);
T. Q. Nguyen, J. Salazar, "Transformers without Tears", IWSLT 2019; J. Zhu, X. Chen, K. He, Y.
LeCun, Z. Liu, "Transformers without Normalization", CVPR 2025.
"""

from __future__ import annotations

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.layers.precision import widened


class Norm(nn.Module):
    """Base of every norm, and the one that changes nothing: x [..., d] to itself.

    Fields with a default are the configuration of a norm; it has no others.
    """

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., d] to [..., d], in the dtype of x and the parameters."""
        return x


class LayerNorm(Norm):
    """(x - mean) / sqrt(variance + eps) * g + b (Ba et al. 2016).

    The variance is computed about the mean: E[x^2] - E[x]^2 loses precision if the mean is large.

    Attributes:
      epsilon: eps.
      use_scale: whether g exists.
      use_bias: whether b exists.
    """

    epsilon: float = 1e-6
    use_scale: bool = True
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """See `Norm.__call__`."""
        wide, result = widened(x), x.dtype
        centred = wide - wide.mean(axis=-1, keepdims=True)
        factor = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + self.epsilon)
        if self.use_scale:
            scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), float)
            factor, result = factor * scale, jnp.result_type(result, scale)
        y = centred * factor
        if self.use_bias:
            bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), float)
            y, result = y + bias, jnp.result_type(result, bias)
        return y.astype(result)


class RMSNorm(Norm):
    """x / sqrt(mean(x^2) + eps) * g (Zhang and Sennrich 2019).

    Attributes:
      epsilon: eps.
      use_scale: whether g exists.
    """

    epsilon: float = 1e-6
    use_scale: bool = True

    added: ClassVar[float] = 0.0  # to g, which starts at what is left of 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """See `Norm.__call__`."""
        wide = widened(x)
        y = wide * jax.lax.rsqrt(jnp.square(wide).mean(axis=-1, keepdims=True) + self.epsilon)
        if not self.use_scale:
            return y.astype(x.dtype)
        initializer = nn.initializers.constant(1.0 - self.added)
        scale = self.param("scale", initializer, (x.shape[-1],), float)
        return (y * (self.added + widened(scale))).astype(jnp.result_type(x, scale))


class RMSNormPlusOne(RMSNorm):
    """x / sqrt(mean(x^2) + eps) * (1 + g), g from 0 (Gemma). The fields are those of `RMSNorm`."""

    added = 1.0


class ScaleNorm(Norm):
    """g x / max(|x|, eps), g one number from sqrt(d) (Nguyen and Salazar 2019).

    Attributes:
      epsilon: eps, lower bound of |x|.
    """

    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """See `Norm.__call__`."""
        wide, root = widened(x), x.shape[-1] ** 0.5
        scale = self.param("scale", nn.initializers.constant(root), (), float)
        squared = jnp.square(wide).sum(axis=-1, keepdims=True)
        # the square is bounded before the root, whose slope at 0 is infinite
        length = jnp.sqrt(jnp.maximum(squared, self.epsilon**2))
        return (scale * wide / length).astype(jnp.result_type(x, scale))


class DynamicTanh(Norm):
    """g * tanh(a x) + b, a one number (Zhu et al. 2025); it bounds x without statistics.

    Attributes:
      start: start value of a.
    """

    start: float = 0.5

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """See `Norm.__call__`."""
        slope = self.param("slope", nn.initializers.constant(self.start), (), float)
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), float)
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), float)
        y = jnp.tanh(widened(x) * slope) * scale + bias
        return y.astype(jnp.result_type(x, scale, bias))
