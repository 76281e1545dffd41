"""Softmax and its relatives with one more term in the denominator.

    softmax             a_ij = exp(e_ij) / sum over the allowed k of exp(e_ik)
    softmax_plus_one    a_ij = exp(e_ij) / (1 + sum_k exp(e_ik))
    sink                a_ij = exp(e_ij) / (exp(b_h) + sum_k exp(e_ik)),  b_h learned, one for each head

The last two let a head attend to nothing: the weights are those of softmax times sigmoid(log sum_k
exp(e_ik) - b_h). b = 0 is softmax_plus_one, b to minus infinity softmax. Unlike softmax they change
if a constant is added to all scores. Cost: about 5 FLOPs for each pair. Parameters: none, none, H.
Source: D. Bahdanau, K. Cho, Y. Bengio, "Neural Machine Translation by Jointly Learning to Align and
Translate", ICLR 2015, equation 6; E. Miller, "Attention Is Off By One", 2023 (web log); sinks as in
the released code of gpt-oss (OpenAI 2025), here starting at b = 0.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment
from attnlab.attention.cards import Card
from attnlab.attention.view import View
from attnlab.layers.precision import widened

LOW = -1e30  # finite in float32: minus infinity would give NaN on a row without allowed keys


class Softmax(Alignment):
    """a_ij = exp(e_ij) / sum_k exp(e_ik) over the allowed keys; no parameters."""

    form = "normalised"
    card = Card(
        "soft", 2015, "Bahdanau et al., Jointly Learning to Align and Translate, ICLR 2015", "T^2"
    )

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        extra = self.extra(scores.shape[1])
        return softmax(scores, mask, None if extra is None else extra[:, None, None])


class SoftmaxPlusOne(Softmax):
    """a_ij = exp(e_ij) / (1 + sum_k exp(e_ik)); no parameters."""

    sums_to = "at most one"
    card = Card("soft, with a sink", 2023, "Miller, Attention Is Off By One, 2023 (web log)", "T^2")

    def extra(self, heads: int) -> jax.Array | None:
        """See `Alignment.extra`."""
        return jnp.zeros(heads, jnp.float32)


class Sink(Softmax):
    """a_ij = exp(e_ij) / (exp(b_h) + sum_k exp(e_ik)), b_h learned from 0."""

    sums_to = "at most one"
    card = Card("soft, with a sink", 2025, "released code of gpt-oss, OpenAI 2025", "T^2")

    @nn.compact
    def extra(self, heads: int) -> jax.Array | None:
        """See `Alignment.extra`."""
        return widened(self.param("logit", nn.initializers.zeros, (heads,)))


def softmax(scores: jax.Array, mask: jax.Array | None, extra: jax.Array | None = None) -> jax.Array:
    """Masked softmax over the last axis in float32, a_j = exp(e_j) / (exp(extra) + sum over allowed
    k of exp(e_k)).

    Args:
      scores: [..., Tk].
      mask: boolean, broadcastable to the scores; True may be seen. None allows all.
      extra: broadcastable to [..., 1]: one more term of the denominator, as a logarithm; None for
        none.

    Returns:
      Weights [..., Tk] float32: exactly 0 where masked; a row with nothing allowed is all zeros,
        with zero gradients.
    """
    scores = widened(scores)
    if not scores.shape[-1]:
        return scores  # no keys
    if mask is None and extra is None:
        return jax.nn.softmax(scores, axis=-1)
    allowed = jnp.ones((), bool) if mask is None else mask
    scores = jnp.where(allowed, scores, LOW)
    top = scores.max(axis=-1, keepdims=True)
    top = jax.lax.stop_gradient(top if extra is None else jnp.maximum(top, extra))
    raised = jnp.where(allowed, jnp.exp(scores - top), 0.0)
    total = raised.sum(axis=-1, keepdims=True)
    if extra is not None:
        return raised / (total + jnp.exp(extra - top))
    return raised / jnp.where(total == 0.0, 1.0, total)


def log_softmax(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """The logarithm of the masked softmax, [..., Tk] float32, stable for tiny weights; 0 where
    masked.
    """
    if not scores.shape[-1]:
        return widened(scores)
    allowed = jnp.ones((), bool) if mask is None else mask
    scores = jnp.where(allowed, widened(scores), LOW)
    below = scores - jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    total = jnp.where(allowed, jnp.exp(below), 0.0).sum(axis=-1, keepdims=True)
    return jnp.where(allowed, below - jnp.log(jnp.where(total == 0.0, 1.0, total)), 0.0)
