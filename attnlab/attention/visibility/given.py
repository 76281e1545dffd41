"""Rules from arrays: prefix-LM, packed segments, and any boolean array.

    Prefix(p)                         j < p, for every query; with `Causal() |` the prefix-LM
    Segments(ids)                     ids_i = ids_j
    Dense(allowed)                    allowed_ij

Arrays are indexed by absolute position, so they must cover the whole sequence, not one call. In
cached decoding, give the ids of all positions that the cache has room for; the step at position t
reads row t. If there are not as many rows as columns, the last row belongs to the query on the last
column, so cross-attention takes [Tq,Tk] arrays. Positions that an array does not cover see nothing
and are not seen. Cost: that of full attention; blocks are never skipped, since the arrays may be
traced. Source: prefix-LM: C. Raffel et al., "Exploring the Limits of Transfer Learning with a
Unified Text-to-Text Transformer", JMLR 2020, section 3.2.1.
"""

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.visibility.rule import Causal, Rule, grid


@flax.struct.dataclass
class Prefix(Rule):
    """Every query sees the keys of the prefix, j < length, and no others.

    Attributes:
      length: static, the same for every row.
      lengths: [B] int32, one length for each row; the larger of the two counts. None: `length`
        only.
    """

    length: int = flax.struct.field(pytree_node=False, default=0)
    lengths: jax.Array | None = None

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """Returns whether keys at positions j are in the prefix, the first `length` positions, or
        of each row the first `lengths` [B] if these are more: a bool array that broadcasts to
        [B,H,tq,tk] and is the same for all query positions i. See `Rule.allows`.
        """
        j = grid(i, j)[1]
        if self.lengths is None:
            return j < self.length
        return j < jnp.maximum(self.lengths, self.length)[:, None, None, None]

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        return self.lengths is not None or j0 < self.length

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        return j1 <= self.length


@flax.struct.dataclass
class Segments(Rule):
    """Packed sequences: only tokens with the same segment id see one another.

    Attributes:
      ids: [B or 1,T] integers, by position; of the queries only where `keys` is given.
      keys: [B or 1,Tk] integers, by position, if the keys are another sequence; None if they are
        the same.
    """

    ids: jax.Array
    keys: jax.Array | None = None

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """Returns a bool array [B or 1,1,tq,tk], True where the query at position i and the key at
        position j have the same segment id, and False for positions outside the ids. Where `keys`
        is given keys have these ids, and the last of `ids` belongs to the position of the last key.
        See `Rule.allows`.
        """
        keys = self.ids if self.keys is None else self.keys
        of_query, query_known = looked_up(
            self.ids, i, axis=1, first=keys.shape[1] - self.ids.shape[1]
        )
        of_key, key_known = looked_up(keys, j, axis=1)
        alike = of_query[:, :, None] == of_key[:, None, :]
        return (alike & query_known[:, :, None] & key_known[:, None, :])[:, None]


@flax.struct.dataclass
class Dense(Rule):
    """Any boolean array; True means that the query may see the key.

    Attributes:
      allowed: broadcastable to [B,H,T,T], by position; an axis of 1 means all positions.
    """

    allowed: jax.Array

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """Returns the entries of the given mask at query positions i and key positions j, a bool
        array broadcastable to [B,H,tq,tk], False for positions outside of the mask; an axis of
        size 1 holds for all positions. Its last row belongs to the position of its last column. See
        `Rule.allows`.
        """
        allowed = jnp.asarray(self.allowed)
        allowed = allowed.reshape((1,) * (4 - allowed.ndim) + allowed.shape)
        rows, columns = allowed.shape[2:]
        for axis, positions, first in ((2, i, 0 if columns == 1 else columns - rows), (3, j, 0)):
            if allowed.shape[axis] > 1:
                values, exists = looked_up(allowed, positions, axis, first)
                allowed = values & exists
        return allowed


def prefix_lm(length: int | jax.Array) -> Rule:
    """The prefix-LM, j <= i or j < length; a static length, or [B] int32."""
    return Causal() | (Prefix(length) if isinstance(length, int) else Prefix(lengths=length))


def looked_up(
    x: jax.Array, positions: jax.Array, axis: int, first: int = 0
) -> tuple[jax.Array, jax.Array]:
    """Returns the entries of x at positions [t] along an axis whose first entry has position
    `first`, and which of the positions exist in x, bool broadcastable to the entries.

    Positions may be [B,t] if rows differ; x is then [B or 1,...].
    """
    x = jnp.asarray(x)
    index = positions - first
    exists = (index >= 0) & (index < x.shape[axis])
    shape = [-1 if a == axis else 1 for a in range(x.ndim)]
    if index.ndim == 1:
        return jnp.take(x, index, axis=axis, mode="clip"), exists.reshape(shape)
    shape[0] = len(index)
    entries = jnp.take_along_axis(x, index.reshape(shape), axis=axis, mode="clip")
    return entries, exists.reshape(shape)
