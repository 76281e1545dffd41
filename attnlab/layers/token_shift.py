"""The token before: what a mixer mixes with a token so that it sees a step of time (token shift).

Source: B. Peng et al., "RWKV: Reinventing RNNs for the Transformer Era", Findings of EMNLP 2023,
section 3.1.

Axis letters: B batch, T tokens of a piece, n channels.
"""

import jax
import jax.numpy as jnp

from attnlab.layers.history import after


def token_before(
    x: jax.Array, last: jax.Array, valid: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Returns for each token of x [B,T,n] the vector of the real token before it, [B,T,n] (`last`
    [B,1,n] where the piece has none), and the vector of the last real token, [B,1,n], for the next
    piece; `valid` [B,T]: which tokens are real.

    Args:
      x: the piece, [B,T,n].
      last: the last real token before the piece, [B,1,n]; zeros if there is none.
      valid: [B,T] bool; None: all are real.
    """
    slots, length = after(last, x), x.shape[1]
    if valid is None:
        return slots[:, :length], slots[:, length:]
    indices = jnp.where(valid, jnp.arange(1, length + 1), 0)
    indices = jnp.pad(jax.lax.cummax(indices, axis=1), ((0, 0), (1, 0)))  # indices into `slots`
    previous = jnp.take_along_axis(slots, indices[..., None], axis=1)
    return previous[:, :length], previous[:, length:]
