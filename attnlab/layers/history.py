"""What is kept of a sequence that is read in pieces, for layers that look back at more than one
state.

Axis letters: B batch, n slots that are kept, T steps of the piece.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def latest(slots: jax.Array, counts: jax.Array, kept: int) -> jax.Array:
    """The last `kept` slots of what has been read: slots [B,n+T,...] to [B,kept,...], n = kept.

    Args:
      slots: what was kept of the pieces before, then the piece's own slots, of which padding may
        only be the last.
      counts: [B] int32, how many slots of the piece are real; none leaves what was kept.
      kept: n.
    """
    return jax.vmap(lambda row, count: jax.lax.dynamic_slice_in_dim(row, count, kept))(
        slots, counts
    )


def after(kept: jax.Array, piece: jax.Array) -> jax.Array:
    """The piece [B,T,...] behind what was kept [B,n,...], in the dtype of the piece."""
    return jnp.concatenate([kept.astype(piece.dtype), piece], axis=1)
