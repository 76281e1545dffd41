"""The three hooks of a position scheme. A scheme overrides the ones it uses and names them in `hooks`."""

from __future__ import annotations

from typing import ClassVar

import flax.linen as nn
import jax


class PositionScheme(nn.Module):
    """No positions at all: every hook hands back what it got. The base of every scheme.

    Hooks:
      embed: on embeddings, x [B,T,d] at positions [T] or [B,T] (absolute, 0 at the first token).
      rotate: on queries or keys, x [B,H,T,D] at positions [T] or [B,T].
      bias: on scores, added to [B,H,Tq,Tk]; None adds nothing.
    """

    hooks: ClassVar[frozenset[str]] = frozenset()

    def embed(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Hook "embedding": x [B,T,d] and positions [T] to [B,T,d]."""
        return x

    def rotate(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Hook "query_key": x [B,H,T,D] and positions [T] to [B,H,T,D]."""
        return x

    def bias(self, of_query: jax.Array, of_key: jax.Array) -> jax.Array | None:
        """Hook "score": positions [Tq] and [Tk] to an additive bias broadcastable to [B,H,Tq,Tk], or None."""
        return None
