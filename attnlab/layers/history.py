"""The memory of a sequence that is read in pieces, for layers that need more than one earlier
state, and the token before: what a mixer mixes with a token so that it sees a step of time (token
shift).

Axis letters: B batch, n slots that are kept (of `token_before`: channels), T steps of the piece, N
slots of blocks. Source of the token before: B. Peng et al., "RWKV: Reinventing RNNs for the
Transformer Era", Findings of EMNLP 2023, section 3.1.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp


def latest(slots: jax.Array, counts: jax.Array, size: int) -> jax.Array:
    """Returns the last n slots read so far: slots [B,n+T,...] to [B,n,...].

    Args:
      slots: the slots kept from earlier pieces, then the slots of this piece, with padding at the
        end only.
      counts: [B] int32, how many slots of the piece are real; with 0 the kept slots stay.
      size: n.
    """
    return jax.vmap(lambda row, count: jax.lax.dynamic_slice_in_dim(row, count, size))(
        slots, counts
    )


def after(earlier: jax.Array, piece: jax.Array) -> jax.Array:
    """Returns `earlier` slots [B,n,...] followed by a piece [B,T,...], in the dtype of the piece."""
    return jnp.concatenate([earlier.astype(piece.dtype), piece], axis=1)


def over_real(
    causal: Callable[[jax.Array], jax.Array],
    x: jax.Array,
    earlier: jax.Array,
    valid: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:
    """Computes a causal function of windows over the real tokens of x [B,T,c] alone (`valid` [B,T],
    by default all), which are moved to the front for it, and back: y [B,T,d], 0 at padding, and the
    last n real tokens [B,n,c], for the next piece.

    Args:
      causal: [B,n+T,c] to [B,T,d], each row of its windows from n tokens before to the token itself.
      x: the piece.
      earlier: [B,n,c], the real tokens before the piece.
      valid: which tokens of the piece are real.
    """
    if valid is None:
        inputs = after(earlier, x)
        return causal(inputs), inputs[:, x.shape[1] :]
    order = jnp.argsort(~valid, axis=1, stable=True)[..., None]
    inputs = after(earlier, jnp.take_along_axis(x, order, axis=1))
    y = jnp.take_along_axis(causal(inputs), jnp.argsort(order, axis=1), axis=1)
    last = latest(inputs, valid.sum(axis=1, dtype=jnp.int32), earlier.shape[1])
    return jnp.where(valid[..., None], y, 0), last


def places(read: jax.Array, length: int, valid: jax.Array | None) -> tuple[jax.Array, jax.Array]:
    """Returns the positions [B,T] of a piece of T = `length` tokens, and how many tokens are read after
    it [B], from how many were before it, `read` [B]; padding (not `valid` [B,T]) is not counted.
    """
    if valid is None:
        return read[:, None] + jnp.arange(length, dtype=jnp.int32), read + length
    counts = jnp.cumsum(valid, axis=1, dtype=jnp.int32)
    return read[:, None] + counts - 1, read + valid.sum(axis=1, dtype=jnp.int32)


def slots(
    read: jax.Array | None, valid: jax.Array, size: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Assigns the real tokens (`valid` [B,T]) of a piece of a text, before which `read` [B] tokens
    came, to N slots in blocks of `size` that begin at multiples of `size` in the text; returns the
    token in each slot [B,N] (T: none), the slot of each real token [B,T] (of others meaningless)
    and the text position of each slot [B,N].

    Args:
      read: how many tokens of each row were read before, [B] int32; None for none.
      valid: [B,T] bool, which tokens of the piece are real; others take no slot.
      size: of a block.

    Returns:
      The token in each slot, [B,N], T where there is none; the slot of each real token, [B,T]; and
      the position in the text of each slot, [B,N]. N is a multiple of `size`.
    """
    rows, length = valid.shape
    read_before = jnp.zeros(rows, jnp.int32) if read is None else read
    first, slack = read_before // size * size, 0 if read is None else size - 1
    count = -(-(length + slack) // size) * size
    slot = places(read_before, length, valid)[0] - first[:, None]
    row, tokens = jnp.arange(rows)[:, None], jnp.arange(length, dtype=jnp.int32)
    token = jnp.full((rows, count), length, jnp.int32)
    token = token.at[row, jnp.where(valid, slot, count)].set(tokens, mode="drop")
    return token, slot, first[:, None] + jnp.arange(count, dtype=jnp.int32)


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
