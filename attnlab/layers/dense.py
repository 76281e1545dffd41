"""What layers compute with: dense projections and dropout in a form that XLA compiles well, vectors cut into
heads, and the inner precision, of scores, softmax, sums and angles:

    inputs          inside          context and weights
    bfloat16        float32         bfloat16, float32
    float32         float32         float32
    float64         float64         float64

So float64 parameters and inputs switch on float64. JAX has float64 arrays only if they are enabled:

    jax.config.update("jax_enable_x64", True)          or, for a while,          with jax.enable_x64(True): ...

Where the documentation of this package says float32, it means the inner precision.
"""

import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.gathering import rows_are_dealt

Draw = Callable[..., jax.Array]
GLOROT = nn.initializers.xavier_uniform()
WORTH_TURNING = 256  # rows of a product from which on a transposition of the kernel is no cost


def inner_dtype(*arrays: Any) -> Any:
    """Returns the inner precision for arrays, or shapes with a dtype: float64 if one of them is
    float64, else float32.
    """
    return jnp.result_type(jnp.float32, *arrays)


def widened(x: Any) -> jax.Array:
    """x, of any shape, in its inner precision."""
    return jnp.asarray(x).astype(inner_dtype(x))


def matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """Computes x [..., n] times kernel [n, m], [..., m], with the leading axes flattened first,
    unless the rows are divided over devices.

    The gradient of the kernel then contracts over one axis instead of several, which XLA's CPU
    backend does twice as fast; elsewhere it makes no difference. There it is faster still if the
    product for that gradient has fewer rows than columns, so a kernel with n > m is `turned`.
    """
    if rows_are_dealt():  # flattened, those of an x with time first would be gathered
        return x @ kernel
    lead = x.shape[:-1]
    flat = x.reshape(math.prod(lead), x.shape[-1])
    tall = kernel.shape[0] > kernel.shape[1] and len(flat) >= WORTH_TURNING
    y = jnp.einsum("rn,mn->rm", flat, turned(kernel)) if tall else flat @ kernel
    return y.reshape(*lead, kernel.shape[-1])


def turned(x: jax.Array) -> jax.Array:
    """Transposes x [n, m] to [m, n]; in a program for a CPU in memory, not only in name: neither the
    transposition nor that of its gradient becomes part of a product.

    XLA's CPU backend computes the gradient of the right side of a product, [n, m], at little more
    than half of its speed if n > m; that of the turned side is [m, n].
    """
    return jax.lax.platform_dependent(
        x, cpu=lambda x: jax.lax.optimization_barrier(x.T), default=jnp.transpose
    )


class Dense(nn.Module):
    """y = x W + b over the last axis: x [..., n] to [..., features]; computed in the dtype of its
    arguments.

    Attributes:
      features: output width.
      use_bias: whether b exists.
      kernel_init: initializer of W, Glorot uniform unless given; b starts at zero.
    """

    features: int
    use_bias: bool = True
    kernel_init: Draw = GLOROT

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., n] to [..., features]."""
        y = matmul(x, self.param("kernel", self.kernel_init, (x.shape[-1], self.features)))
        return (
            y + self.param("bias", nn.initializers.zeros, (self.features,)) if self.use_bias else y
        )


def unbiased(count: int, features: int, **options: Any) -> tuple[Dense, ...]:
    """Returns `count` layers `Dense(features, use_bias=False)`, each with parameters of its own;
    `options` are further fields of each.
    """
    return tuple(Dense(features, use_bias=False, **options) for _ in range(count))


class Dropout(nn.Module):
    """Inverted dropout, on exactly when the caller passes a "dropout" random stream.

    Each entry is kept with probability 1 - rate and divided by it. The decision takes 16 random
    bits, so the rate is exact to 2^-16; a quarter of the bits of a float draw, which matters on a
    CPU.
    """

    rate: float

    def __call__(self, x: jax.Array) -> jax.Array:
        """x of any shape, same shape and dtype returned."""
        key = self.key()
        return x if key is None else dropped(x, self.rate, key)

    def key(self) -> jax.Array | None:
        """The key of one draw; None while dropout is off."""
        return self.make_rng("dropout") if self.active else None

    @property
    def active(self) -> bool:
        """Whether anything is dropped in this call."""
        return self.rate > 0.0 and self.has_rng("dropout")


def dropped(x: jax.Array, rate: float, key: jax.Array) -> jax.Array:
    """x of any shape with entries dropped at a rate, the others divided by 1 - rate."""
    keep_mask = jax.random.bits(key, x.shape, jnp.uint16) >= round(rate * 2**16)
    return jnp.where(keep_mask, x / (1.0 - rate), jnp.zeros_like(x))


def split(x: jax.Array, heads: int) -> jax.Array:
    """[B,T,H*D] to heads first, [B,H,T,D], in which form products are fast."""
    return x.reshape(*x.shape[:2], heads, x.shape[-1] // heads).transpose(0, 2, 1, 3)


def joined(x: jax.Array) -> jax.Array:
    """[B,H,T,D] to [B,T,H*D]."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


class SharedOutput(nn.Module):
    """An output layer whose matrix is the table of embeddings [V,E]: logits = x table^T + b, b from
    zero.
    """

    @nn.compact
    def __call__(self, x: jax.Array, table: jax.Array) -> jax.Array:
        """x [...,E] to [...,V]."""
        return matmul(x, table.T) + self.param("bias", nn.initializers.zeros, (len(table),))
