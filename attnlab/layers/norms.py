"""Norms over the last axis: x [..., d] to [..., d].

    layer_norm           (x - mean) / sqrt(variance + eps) * g + b       g from 1, b from 0; the variance about the mean, over d
    rms_norm             x / sqrt(mean(x^2) + eps) * g                   g from 1
    rms_norm_plus_one    x / sqrt(mean(x^2) + eps) * (1 + g)             g from 0, so that weight decay pulls towards 1
    scale_norm           g x / max(|x|, eps)                             one number g from sqrt(d)
    dynamic_tanh         g * tanh(a x) + b                               one number a from 0.5, g from 1, b from 0; no statistics
    batch_norm           (x - m) / sqrt(v + eps) * g + b                 g from 1, b from 0; m, v over the tokens of a batch
    none                 x

g and b have d numbers unless said otherwise. Everything is computed in the inner precision (see
`precision`) and rounded once, at the end. Published models differ in eps: 1e-5 (GPT-2, BART, Llama
2 and 3), 1e-6 (T5, Llama's default), 1e-12 (BERT).

Source: J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", 2016; B. Zhang, R. Sennrich,
"Root Mean Square Layer Normalization", NeurIPS 2019; 1 + g as in the released code of Gemma (2024);
T. Q. Nguyen, J. Salazar, "Transformers without Tears", IWSLT 2019; J. Zhu, X. Chen, K. He, Y.
LeCun, Z. Liu, "Transformers without Normalization", CVPR 2025; S. Ioffe, C. Szegedy, "Batch
Normalization", ICML 2015.
"""

from typing import ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.layers.dense import widened

STATISTICS = "statistics"
"""The variable collection in which a norm leaves what it saw of a batch; mutable in training alone."""
DEVICES = "data"  # the axis of the devices that share a batch, `training.parallel.AXIS`


class Norm(nn.Module):
    """Base of every norm, and the one that changes nothing: x [..., d] to itself.

    Fields with a default are the configuration of a norm; it has no others.

    Attributes:
      over_batch: whether it computes over all real tokens of a batch; it is then called with
        `valid`, see `BatchNorm`.
    """

    over_batch: ClassVar[bool] = False

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., d] to [..., d], in the dtype of x and the parameters."""
        return x


class LayerNorm(Norm):
    """(x - mean) / sqrt(variance + eps) * g + b (Ba et al. 2016).

    The variance is computed about the mean: E[x^2] - E[x]^2 loses precision if the mean is large.

    Attributes:
      epsilon: eps, added to the variance, so that nothing is divided by 0.
      use_scale: whether each unit is multiplied by a trained number g.
      use_bias: whether a trained number b is added to each unit.
    """

    epsilon: float = 1e-6
    use_scale: bool = True
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes (x - mean) / sqrt(variance + eps) over the last axis of x [..., d], times g and
        plus b if these exist. See `Norm.__call__`.
        """
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
      epsilon: eps, added to the variance, so that nothing is divided by 0.
      use_scale: whether each unit is multiplied by a trained number g.
    """

    epsilon: float = 1e-6
    use_scale: bool = True

    added: ClassVar[float] = 0.0  # to g, which starts at what is left of 1

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes x / sqrt(mean(x^2) + eps) over the last axis of x [..., d], times `added` (0, or
        1 in a subclass) plus the learned scale [d] if there is one. See `Norm.__call__`.
        """
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
        """Computes g x / max(|x|, eps) over the last axis of x [..., d], g one learned number. See
        `Norm.__call__`.
        """
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
        """Computes g * tanh(a x) + b for x [..., d], with learned a (one number), g and b [d]. See
        `Norm.__call__`.
        """
        slope = self.param("slope", nn.initializers.constant(self.start), (), float)
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), float)
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), float)
        y = jnp.tanh(widened(x) * slope) * scale + bias
        return y.astype(jnp.result_type(x, scale, bias))


class BatchNorm(Norm):
    """(x - m) / sqrt(v + eps) * g + b, with the mean m and the variance v of each of the d numbers
    over all real tokens of the batch (Ioffe and Szegedy 2015, algorithms 1 and 2).

        y = (x - m) / sqrt(v + eps) * g + b
        training     m = sum_t x_t / n;  v = sum_t (x_t - m)^2 / n          over the n real tokens of all rows
        afterwards   m, v the running averages:  m' = c m' + (1 - c) m;  v' = c v' + (1 - c) v n / (n - 1)

    The batch is the global one, over all devices; padding is not counted. So a token depends on all
    others of its batch in training, also on those behind it: in a causal decoder the statistics of a
    batch tell a token of its future, and the loss in training is that of another model than the
    causal one which is evaluated and decodes. It is here as a contrast. The running averages are
    parameters, "mean" and "variance", without a gradient; the training step moves them (not where
    they are frozen), and a moving average of parameters averages them too. The paper's average is
    over batches after training.

    Attributes:
      epsilon: eps, added to the variance, so that nothing is divided by 0.
      momentum: c, the weight of earlier batches in the running mean and variance.
    """

    epsilon: float = 1e-5
    momentum: float = 0.9

    over_batch = True

    @nn.compact
    def __call__(self, x: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Normalises x [..., d] by mean and variance of the batch's real tokens (`valid` [...]
        bool) in training, else by running averages, then scales and shifts it; raises `UserError`
        without `valid`, for a momentum outside [0, 1), or in training by a loss that does not store
        averages.

        Raises:
          UserError: it is not told which are, or is trained by a loss that does not keep statistics.
        """
        where = f"norm batch_norm at {'/'.join(self.path)}"
        if valid is None:
            raise UserError(
                f"{where}: nothing says here which tokens are real; take another norm (before the"
                " logits of a masked language model: or system.head=linear)"
            )
        if not 0.0 <= self.momentum < 1.0:
            raise UserError(f"{where}: momentum={self.momentum}: expected at least 0 and below 1")
        size = (x.shape[-1],)
        scale, variance = (
            self.param(name, nn.initializers.ones, size, float) for name in ("scale", "variance")
        )
        bias, mean = (
            self.param(name, nn.initializers.zeros, size, float) for name in ("bias", "mean")
        )
        result = jnp.result_type(x, scale, bias)
        if not self.is_initializing():
            if self.is_mutable_collection(STATISTICS):
                mean, variance = self._of_batch(widened(x), valid[..., None])
            elif self.has_rng("dropout"):
                raise UserError(
                    f"{where}: the loss of this task does not keep the statistics of batches; take"
                    " another norm"
                )
        factor = jax.lax.rsqrt(widened(variance) + self.epsilon)
        return ((widened(x) - mean) * factor * scale + bias).astype(result)

    def _of_batch(self, x: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Computes the mean and the variance [d] of x [..., d] over the real tokens (`valid` [...,
        1] bool) of the batch, and sows them, the variance unbiased, for the update of the running
        averages.
        """

        def total(numbers: jax.Array) -> jax.Array:
            masked = jnp.where(valid, numbers, 0.0)
            return _over_devices(masked.sum(axis=tuple(range(masked.ndim - 1))))

        tokens = total(jnp.ones((), x.dtype))
        count = jnp.maximum(tokens, 1.0)
        mean = total(x) / count
        variance = total(jnp.square(x - mean)) / count
        unbiased = variance * count / jnp.maximum(count - 1.0, 1.0)
        moments = {"mean": mean, "variance": unbiased}
        momentum = jnp.where(tokens > 0, self.momentum, 1.0)[0]  # an empty batch tells nothing
        self.sow(STATISTICS, "seen", jax.lax.stop_gradient((momentum, moments)))
        return mean, variance


def apply_norm(norm: Norm, x: jax.Array, valid: jax.Array | None) -> jax.Array:
    """Computes a norm of x [..., d]; `valid` [...]: which tokens are real, for norms that need it."""
    return norm(x, valid) if norm.over_batch else norm(x)  # type: ignore[call-arg]


def _over_devices(x: jax.Array) -> jax.Array:
    """Returns x summed over the devices that share a batch, if each runs a program of its own
    (`pmap`); else x.
    """
    try:
        total: jax.Array = jax.lax.psum(x, DEVICES)
    except NameError:  # there is no such axis
        return x
    return total


class GatedNorm(nn.Module):
    """An RMS norm and a gate, the end of a recurrent mixer.

        norm first      N(o) * a(z)          RetNet, GLA, Gated DeltaNet, KDA
        gate first      N(o * a(z))          Mamba-2

    N is `RMSNorm` over the last axis, so over a head for o [..., E] and over all for o [..., d].
    Source: Y. Sun et al., "Retentive Network", 2023 (with a group norm); T. Dao, A. Gu,
    "Transformers are SSMs", ICML 2024.

    Attributes:
      activation: a.
      first: which of the two comes first.
      epsilon: eps of the norm.
    """

    activation: Literal["silu", "sigmoid"] = "silu"
    first: Literal["norm", "gate"] = "norm"
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, o: jax.Array, z: jax.Array) -> jax.Array:
        """o and z [..., n] to [..., n], in the inner precision."""
        norm = RMSNorm(self.epsilon, name="norm")
        gate = getattr(jax.nn, self.activation)(widened(z))
        return norm(widened(o)) * gate if self.first == "norm" else norm(widened(o) * gate)
