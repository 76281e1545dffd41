"""Feature maps: the weight of a key in linear attention is phi(q) . phi(k), before it is normalised.

    identity    x                                                       products of either sign
    elu         elu(x) + 1                                              Katharopoulos et al. 2020
    relu        max(x, 0)                                               Kasai et al. 2021, without their projection
    softmax     softmax(x)                                              Shen et al. 2021, as of their queries
    hedgehog    [softmax(z), softmax(-z)], z = x W + b                  Zhang et al. 2024; W from I, b from 0, one for each head
    squared     x_a x_b for a <= b, times sqrt(2) for a < b             Kacham et al. 2024, degree 2; phi(q).phi(k) = (q.k)^2
    taylor      [1, y, squared(y) / sqrt(2)], y = x / D^(1/4)           Arora et al. 2024; 1 + s + s^2 / 2, s = q.k / sqrt(D)
    dpfp        r_a r_{a+n}, n = 1..N, r = max([x, -x], 0), a ring      Schlag et al. 2021
    cosine      [max(x, 0) cos t, max(x, 0) sin t], t = pi p / 2L       Qin et al. 2022; weights times cos(pi (i - j) / 2L)

They have D features, but hedgehog and cosine 2D, squared D(D+1)/2, taylor 1 + D more, dpfp 2DN.
p is the position of a token. Axis letters: B batch, H heads, T tokens, D head width. Source: A.
Katharopoulos et al., "Transformers are RNNs", ICML 2020; J. Kasai et al., "Finetuning Pretrained
Transformers into RNNs", EMNLP 2021; Z. Shen et al., "Efficient Attention", WACV 2021; M. Zhang et
al., "The Hedgehog & the Porcupine", ICLR 2024; P. Kacham et al., "PolySketchFormer", ICML 2024; S.
Arora et al., "Simple Linear Attention Language Models Balance the Recall-Throughput Tradeoff"
(Based), ICML 2024; I. Schlag et al., "Linear Transformers Are Secretly Fast Weight Programmers",
ICML 2021; Z. Qin et al., "cosFormer", ICLR 2022. Hedgehog's training to mimic softmax is not here.
"""

import functools
import math
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.errors import at_least


class FeatureMap(nn.Module):
    """x itself; its products may be negative, so that they cannot be normalised by their sum. The
    base of every feature map. Fields are the configuration.

    Card: none; Yang et al., Gated Linear Attention, ICML 2024, as in later models.
    """

    positive: ClassVar[bool] = False  # whether no product of two vectors of features is negative
    places: ClassVar[bool] = False  # whether features depend on positions

    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """x [B,H,T,D] of tokens at positions `positions` [T] or [B,T] to features [B,H,T,M]."""
        return x

    @nn.nowrap
    def size(self, width: int) -> int:
        """Returns M, the number of features of a vector of a head width D."""
        one_head = jax.ShapeDtypeStruct((1, 1, 1, width), jnp.float32)
        init = functools.partial(self.clone(parent=None).init_with_output, jax.random.key(0))
        return int(jax.eval_shape(init, one_head, jnp.zeros(1, jnp.int32))[0].shape[-1])


class Elu(FeatureMap):
    """elu(x) + 1: x + 1 above 0, else e^x (Katharopoulos et al. 2020, equation 7).

    Card: linear; Katharopoulos et al., Transformers are RNNs, ICML 2020.
    """

    positive = True

    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """See `FeatureMap.__call__`."""
        return jax.nn.elu(x) + 1.0


class Relu(FeatureMap):
    """max(x, 0) (Kasai et al. 2021). A key that fits nothing weighs nothing.

    Card: linear; Kasai et al., Finetuning Transformers into RNNs, EMNLP 2021.
    """

    positive = True

    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """See `FeatureMap.__call__`."""
        return jax.nn.relu(x)


class Softmaxes(FeatureMap):
    """A softmax over the channels of each vector (Shen et al. 2021).

    Card: linear; Shen et al., Efficient Attention, WACV 2021.
    """

    positive = True

    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """See `FeatureMap.__call__`."""
        return jax.nn.softmax(x, axis=-1)


class Hedgehog(FeatureMap):
    """[softmax(z), softmax(-z)], z = x W_h + b_h for each head h (Zhang et al. 2024).

    Card: linear; Zhang et al., The Hedgehog & the Porcupine, ICLR 2024.
    """

    positive = True

    @nn.compact
    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Computes softmax(z) and softmax(-z) over the channels, side by side [B,H,T,2D], of z = x
        W_h + b_h for x [B,H,T,D], with W_h learned from the identity and b_h from 0; `positions`
        are not used. See `FeatureMap.__call__`.
        """
        heads, width = x.shape[1], x.shape[-1]
        eye = jnp.broadcast_to(jnp.eye(width), (heads, width, width))
        kernel = self.param("kernel", lambda key, shape: eye, eye.shape)
        bias = self.param("bias", nn.initializers.zeros, (heads, 1, width))
        z = x @ kernel.astype(x.dtype) + bias
        return jnp.concatenate([jax.nn.softmax(z, axis=-1), jax.nn.softmax(-z, axis=-1)], axis=-1)


class Squared(FeatureMap):
    """The products of two channels each, so that phi(q).phi(k) = (q.k)^2 (Kacham et al. 2024).

    Card: linear; Kacham et al., PolySketchFormer, ICML 2024.
    """

    positive = True

    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """See `FeatureMap.__call__`."""
        return products(x)


class Taylor(Squared):
    """[1, y, squared(y) / sqrt(2)], y = x / D^(1/4), so that phi(q).phi(k) = 1 + s + s^2 / 2 with s
    = q.k / sqrt(D), the beginning of e^s and at least 1/2 (Arora et al. 2024).

    Card: linear; Arora et al., Simple Linear Attention (Based), ICML 2024.
    """

    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """See `FeatureMap.__call__`."""
        y = x * x.shape[-1] ** -0.25
        ones = jnp.ones_like(y[..., :1])
        return jnp.concatenate([ones, y, products(y) * math.sqrt(0.5)], axis=-1)


class Dpfp(FeatureMap):
    """Products of neighbours in r = max([x, -x], 0), which is a ring (Schlag et al. 2021, equation
    37): sparse features without an exponential.

    Attributes:
      neighbours: N, how many of the next ones each is multiplied with.

    Card: linear; Schlag et al., Linear Transformers, ICML 2021.
    """

    neighbours: int = 1

    positive = True

    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """See `FeatureMap.__call__`."""
        at_least(1, "dpfp", neighbours=self.neighbours)
        r = jax.nn.relu(jnp.concatenate([x, -x], axis=-1))
        rolled = [r * jnp.roll(r, n, axis=-1) for n in range(1, self.neighbours + 1)]
        return jnp.concatenate(rolled, axis=-1)


class Cosine(FeatureMap):
    """relu, and the weight of a pair times cos(pi (i - j) / 2L): nearer keys weigh more (cosFormer,
    Qin et al. 2022, equation 10).

    Attributes:
      length: L; weights of keys further away than this would be negative.

    Card: linear; Qin et al., cosFormer, ICLR 2022.
    """

    length: int = 1024

    positive = True
    places = True

    def __call__(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Computes relu(x) cos(angle) and relu(x) sin(angle) side by side, [B,H,T,2D], for x
        [B,H,T,D] with angle = pi i / (2 `length`) at position i; raises UserError for a `length`
        below 1. See `FeatureMap.__call__`.
        """
        at_least(1, "cosine", length=self.length)
        angle = positions.astype(x.dtype)[..., None] * (math.pi / (2 * self.length))
        angle = angle[:, None] if positions.ndim == 2 else angle
        rectified = jax.nn.relu(x)
        return jnp.concatenate([rectified * jnp.cos(angle), rectified * jnp.sin(angle)], axis=-1)


def products(x: jax.Array) -> jax.Array:
    """x_a x_b for a <= b, times sqrt(2) for a < b: [...,D] to [...,D(D+1)/2]."""
    a, b = np.triu_indices(x.shape[-1])
    return x[..., a] * x[..., b] * np.where(a == b, 1.0, math.sqrt(2.0)).astype(x.dtype)
