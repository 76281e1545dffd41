"""Alignments: scores to weights, over the last axis. Axis letters: B batch, H heads, Tq queries, Tk keys."""

from __future__ import annotations

import jax
import jax.numpy as jnp

_LOW = -1e30  # finite in float32: minus infinity would give NaN on a row nobody may see


def softmax(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Masked softmax, a_ij = exp(e_ij) / sum over allowed k of exp(e_ik), in float32.

    Args:
      scores: [..., Tk].
      mask: boolean, broadcastable to the scores; True may be seen. None allows all.

    Returns:
      Weights [..., Tk] float32: exactly 0 where masked; a row with nothing allowed is all zeros, with zero gradients.
    """
    scores = scores.astype(jnp.float32)
    if mask is None:
        return jax.nn.softmax(scores, axis=-1)
    scores = jnp.where(mask, scores, _LOW)
    top = jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    raised = jnp.where(mask, jnp.exp(scores - top), 0.0)
    total = raised.sum(axis=-1, keepdims=True)
    return raised / jnp.where(total == 0.0, 1.0, total)
