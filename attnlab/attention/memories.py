"""What a mechanism remembers of a source, and how it grows: with every token, or as a ring of the
last w tokens where a rule lets nobody see further back.

    slot of the token at position p        p, counted from the first token of the memory
    of a ring                              p mod w; the slot has its own position, -1 while empty

In a ring a token replaces the one that stands w positions before it. A piece of several tokens also
needs what it is about to replace, so until its look is over it stands behind the w slots; `settled`
then moves it into them.

Axis letters: B batch, n heads, Tk keys, t tokens of a piece, w slots of a ring.
"""

import dataclasses
from typing import Any, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.view import Where, token_positions

Grown = TypeVar("Grown", bound="Memory")


@flax.struct.dataclass
class Memory:
    """What a mechanism precomputes from its source. Mechanisms add their own arrays.

    Attributes:
      valid: [B,Tk] bool, True at slots that hold a real token.
      length: tokens written so far, int32: [] if all rows have equally many (Tk, or fewer if there
        is spare capacity for `extend`), [B] if the rows differ (`by_row`).
      positions: the positions of the slots, see `Where`; None means 0, 1, 2, ...
      ring: w, how many slots a ring has; 0 for a memory that keeps every token.
    """

    valid: jax.Array
    length: jax.Array
    positions: Where | None = flax.struct.field(kw_only=True, default=None)
    ring: int = flax.struct.field(kw_only=True, default=0, pytree_node=False)

    def by_row(self) -> Any:
        """The same memory with one length for each row. From now on padding at the end of a row
        takes no slot, so the next token of a row follows the last real token of that row.
        """
        last = jnp.where(self.valid, jnp.arange(1, self.valid.shape[1] + 1, dtype=jnp.int32), 0)
        length = last.max(axis=1, initial=0)
        return self.replace(length=length)  # type: ignore[attr-defined]

    def as_ring(self) -> Any:
        """Returns this memory, which must be empty, as a ring (circular buffer) of as many slots,
        with all slots not `valid` and at position -1. Every array that a mechanism adds must have
        the slots on axis 2, [B,n,w,...].
        """
        rows, slots = self.valid.shape
        nowhere = jnp.full((rows, slots), -1, jnp.int32)
        return self.replace(  # type: ignore[attr-defined]
            valid=jnp.zeros((rows, slots), bool), positions=nowhere, ring=slots
        )

    def following(self, steps: int) -> jax.Array:
        """Positions of the next `steps` tokens, int32 [steps], or [B,steps] if rows differ.

        Raises:
          ValueError: each slot has a position of its own, so the next position is unknown.
        """
        self._grows()
        first = 0 if self.ring or self.positions is None else self.positions
        return token_positions(first + self.length, steps)

    def appended(self, valid: jax.Array | None, **arrays: jax.Array) -> Any:
        """Returns this memory with new arrays [B,n,t,...] (by field name) and `valid` [B,t] (None:
        all real) written to the next t slots (a ring: over the oldest or behind the slots; padding
        is left out if rows have lengths of their own); raises ValueError if slots have positions of
        their own. The caller guarantees `length + t <= capacity`, unless the memory is a ring.

        Raises:
          ValueError: as of `following`.
        """
        self._grows()
        batch, _, steps = next(iter(arrays.values())).shape[:3]
        put = jax.lax.dynamic_update_slice_in_dim
        real = jnp.ones((batch, steps), bool) if valid is None else valid
        if self.ring:
            return self._rolled(real, arrays)
        if np.ndim(self.length):
            return self._appended_by_row(real, arrays)
        grown = {
            name: put(getattr(self, name), x.astype(getattr(self, name).dtype), self.length, 2)
            for name, x in arrays.items()
        }
        valid, length = put(self.valid, real, self.length, 1), self.length + steps
        return self.replace(valid=valid, length=length, **grown)  # type: ignore[attr-defined]

    def settled(self) -> Any:
        """Moves the tokens of the last piece, which `appended` put behind the w slots of a ring,
        into their slots and returns the ring with w slots; returns any other memory unchanged.
        """
        if not self.ring or self.valid.shape[1] == self.ring:
            return self
        last = jnp.asarray(self.length).reshape(-1, 1) - 1
        slots = jnp.arange(self.ring, dtype=jnp.int32)
        latest = last - (last - slots) % self.ring  # the last position that each slot is for
        pieces = self.valid.shape[1] - self.ring
        first = last + 1 - (self._counted(self.valid[:, self.ring :], pieces))
        source = jnp.where(latest >= first, self.ring + latest - first, slots)
        source = jnp.broadcast_to(source, (len(self.valid), self.ring))
        take = jax.vmap(lambda x, index: x[:, index])
        fields = {name: take(getattr(self, name), source) for name in self.array_names()}
        for name in ("valid", "positions"):
            fields[name] = jnp.take_along_axis(getattr(self, name), source, axis=1)
        return self.replace(**fields)  # type: ignore[attr-defined]

    def _grows(self) -> None:
        """Raises ValueError if the memory is no ring and each of its slots has a position of its
        own, because then no token can be appended.
        """
        if not self.ring and self.positions is not None and np.ndim(self.positions) == 2:
            raise ValueError(
                "a memory whose slots have positions of their own cannot grow; remember all of its"
                " tokens at once"
            )

    def _counted(self, real: jax.Array, steps: int) -> Any:
        """How many positions tokens take, `real` [B,t] of them: [B,1] if rows differ, else t."""
        return real.sum(axis=1, keepdims=True, dtype=jnp.int32) if np.ndim(self.length) else steps

    def array_names(self) -> list[str]:
        """Returns a list of the names of the dataclass fields that a subclass adds to the fields of
        `Memory`, static fields left out.
        """
        ours = {field.name for field in dataclasses.fields(Memory)}
        return [
            field.name
            for field in dataclasses.fields(self)
            if field.name not in ours and field.metadata.get("pytree_node", True)
        ]

    def _rolled(self, real: jax.Array, arrays: dict[str, jax.Array]) -> Any:
        """Returns this ring with new arrays [B,n,t,...] (by field name) and `real` [B,t], True at
        real tokens, appended: a single token is written over the oldest, several are put behind the
        slots until `settled`.
        """
        batch, steps = real.shape
        positions = jnp.broadcast_to(self.following(steps), (batch, steps))
        new = {**arrays, "valid": real[:, None], "positions": positions[:, None]}
        old = {name: getattr(self, name) for name in arrays}
        old |= {name: getattr(self, name)[:, None] for name in ("valid", "positions")}
        if steps == 1:
            writes = real if np.ndim(self.length) else jnp.ones_like(real)
            slot = jnp.where(writes, positions % self.ring, self.ring)
            grown = {name: _put(old[name], slot, x) for name, x in new.items()}
        else:
            grown = {
                name: jnp.concatenate([old[name], x.astype(old[name].dtype)], axis=2)
                for name, x in new.items()
            }
        grown |= {name: grown[name][:, 0] for name in ("valid", "positions")}
        count = self._counted(real, steps)
        length = self.length + (count[:, 0] if np.ndim(count) else count)
        return self.replace(length=length, **grown)  # type: ignore[attr-defined]

    def _appended_by_row(self, real: jax.Array, arrays: dict[str, jax.Array]) -> Any:
        """Returns this memory, in which each row has a length of its own, with new arrays
        [B,n,t,...] (by field name) written behind the last token of each row where `real` [B,t] is
        True; padding is not written.
        """
        slots = self.valid.shape[1]
        slot = jnp.where(real, self.length[:, None] + jnp.arange(real.shape[1]), slots)
        grown = {name: _put(getattr(self, name), slot, x) for name, x in arrays.items()}
        return self.replace(  # type: ignore[attr-defined]
            valid=_put(jnp.asarray(self.valid)[:, None], slot, real[:, None])[:, 0],
            length=self.length + real.sum(axis=1, dtype=jnp.int32),
            **grown,
        )


def _put(old: jax.Array, slot: jax.Array, new: jax.Array) -> jax.Array:
    """Writes new [B,n,t,...] into old [B,n,Tk,...] at slots [B,t], and returns the result; entries
    for slots beyond the last are dropped.

    A single update of a single row gets a second one, which is dropped. XLA's CPU backend would make
    a slice update of it and compute that again for each of its readers, from a copy of the whole
    array: 13 of the 40 ms of a token of GPT-2 small with room for 1,000.
    """
    if slot.size == 1:
        slot = jnp.pad(slot, ((0, 0), (0, 1)), constant_values=old.shape[2])
        new = with_room(new, 2)
    put = jax.vmap(lambda old, slot, new: old.at[:, slot].set(new.astype(old.dtype), mode="drop"))
    return put(old, slot, new)  # type: ignore[no-any-return]


def written(
    source: jax.Array, valid: jax.Array | None, capacity: int | None
) -> tuple[jax.Array, jax.Array]:
    """Returns the fields `valid` and `length` of a new `Memory` of a source [B,Tk,ds]: the mask
    [B,capacity], False in spare slots, and the number Tk of written slots, int32; raises ValueError
    if the capacity is below Tk.
    """
    batch, length = source.shape[:2]
    slots = length if capacity is None else capacity
    if slots < length:
        raise ValueError(f"capacity {slots} is smaller than the source's length {length}")
    spare = ((0, 0), (0, slots - length))
    filled: Any = (
        np.pad(np.ones((batch, length), bool), spare) if valid is None else jnp.pad(valid, spare)
    )
    return filled, np.asarray(length, np.int32)  # type: ignore[return-value]  # a NumPy array if possible: kernels use its value during tracing


def first_memory(
    memory: type[Grown],
    source: jax.Array,
    valid: jax.Array | None,
    capacity: int | None,
    positions: Where,
    **arrays: jax.Array,
) -> Grown:
    """Creates the memory of a source, of the class `memory`, with the fields `arrays`, padded by
    zeros to `capacity` slots (None: as many as tokens); raises ValueError if there are fewer slots
    than tokens, or spare ones although each token has a position of its own.

    Args:
      memory: its class.
      source: [B,Tk,ds].
      valid, capacity, positions: see `Attention.remember`.
      arrays: [B,H,Tk,...] by the name of the field.
    """
    filled, length = written(source, valid, capacity)
    roomy: dict[str, Any] = {name: with_room(x, filled.shape[1]) for name, x in arrays.items()}
    return memory(filled, length, **roomy, positions=beginning(positions, filled))


def beginning(positions: Where, filled: jax.Array) -> Any:
    """Returns the field `positions` of a new memory with slots `filled` [B,Tk] from the positions
    of its source, that is, None for 0, first positions as they are, or int32 [B,Tk] if each token
    has its own; raises ValueError if there are then spare slots.

    Raises:
      ValueError: each token has a position of its own, but there are more slots than tokens.
    """
    if np.ndim(positions) < 2:
        return None if isinstance(positions, int) and positions == 0 else positions
    if np.shape(positions)[1] != filled.shape[1]:
        raise ValueError(
            f"positions of {np.shape(positions)[1]} tokens for {filled.shape[1]} slots; a memory"
            " with spare capacity takes the first one's"
        )
    return jnp.broadcast_to(jnp.asarray(positions, jnp.int32), filled.shape)


def with_room(x: jax.Array, slots: int) -> jax.Array:
    """x [B,H,T,...] padded with zeros to `slots`; x itself if T = `slots`.

    Padding by zero slots would still be an operation, and XLA merges no transposes across it: 5 %
    of the time of a small layer.
    """
    spare = slots - x.shape[2]
    return jnp.pad(x, [(0, spare if axis == 2 else 0) for axis in range(x.ndim)]) if spare else x
