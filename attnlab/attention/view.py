"""Which tokens are real, where they stand, and which query may see which key: one object for every
look.

    read(query, memory, CAUSAL & Window(256))              the last query stands on the last key
    read(query, memory, View(positions=t))                 the first query stands at t, the others follow
    read(query, memory, View(CAUSAL.rule, positions=at))   at [B]: a first position for each row; [B,Tq]: one for each query

A system passes a rule, and the positions of the queries if the last query does not stand on the
last key. `onto` combines the view with a memory and a query; alignments, position schemes and
kernels get the result. Positions are one number for all rows if the caller has one number. Kernels
then know during tracing which blocks they can skip.

Parts that look at what stands between a key and its query sum along the keys in the order of their
positions (`in_order`, `after_each`). Slots usually stand in this order, and nothing is moved. In a
memory whose tokens have positions of their own (a shard, a permuted source) they may not.

Axis letters: B batch, H heads, Tq queries, Tk keys.
"""

import dataclasses
from typing import Any, Protocol

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention import visibility
from attnlab.attention.visibility.rule import Causal, Everything, Rule, columns_of, rows_of
from attnlab.errors import UserError

Where = jax.Array | np.ndarray | int
"""Positions of the tokens of a sequence, int32: a number or [], the position of the first token
(the others follow); [B], the same for each row; [B or 1,T], the position of each token.
"""

_SHARED = ("positions", "valid", "segments", "trees")


class Remembered(Protocol):
    """What a view uses of a memory; see `Memory`."""

    valid: Any
    length: Any
    positions: Any


@flax.struct.dataclass
class View:
    """Which query may see which key in one look: a rule, and the tokens it is applied to. Views
    combine with rules and views by & and |.

    Attributes:
      rule: a statement about the positions of a query and a key, see `Rule`.
      positions: of the queries, see `Where`; None: the last query stands on the last written key.
      valid: [B,T] bool, True at real tokens: of the piece in `mix`, of the keys [B,Tk] in a look;
        None if all are real.
      segments: [B or 1,T] integers, by position: only tokens with the same number see each other,
        whatever the rule says; None if all are one text.
      trees: [B or 1,T,T] int32, distances in dependency trees, by position
        (`positions.syntax.structural_distance`), for the schemes that use them; None if there are
        no trees.

    `onto` adds, for one look:
      keys: positions of the keys, see `Where`.
      written: how many slots of the memory are written, [] or [B].
      size: Tq and Tk.
      query: [B,Tq,dq].
      key_counts: broadcastable to [B,H,Tq,1] int32, how many keys each query may see. Only kernels that
        go block by block give it, since the mask of one block does not show it; None: the mask
        covers the whole row.
    """

    rule: Rule = Everything()
    positions: Where | None = None
    valid: jax.Array | None = None
    segments: jax.Array | None = None
    trees: jax.Array | None = None
    keys: Where | None = None
    written: Where | None = None
    query: jax.Array | None = None
    key_counts: jax.Array | None = None
    size: tuple[int, int] = flax.struct.field(pytree_node=False, default=(0, 0))

    def __and__(self, other: "Rule | View") -> "View":
        """Both must allow the pair."""
        return self._with(self.rule & _rule(other), other)

    def __or__(self, other: "Rule | View") -> "View":
        """One must allow the pair."""
        return self._with(self.rule | _rule(other), other)

    def __rand__(self, other: Rule) -> "View":
        """A rule on the left."""
        return self._with(other & self.rule, other)

    def __ror__(self, other: Rule) -> "View":
        """A rule on the left."""
        return self._with(other | self.rule, other)

    # A look

    def onto(self, memory: Remembered, query: jax.Array) -> "View":
        """Returns a copy of this view for a query [B,Tq,dq] on a memory, with positions (by default
        of the last written slots), keys, `valid`, sizes and query filled in; raises ValueError if
        keys, but not queries, have positions of their own (unless a ring).

        Raises:
          ValueError: each key has a position of its own, and this view has no positions for the
            queries.
        """
        size = query.shape[1], memory.valid.shape[1]
        positions, keys = self.positions, 0 if memory.positions is None else memory.positions
        if positions is None:
            if np.ndim(keys) == 2 and not getattr(memory, "ring", 0):
                raise ValueError(
                    "the keys of this memory have positions of their own; say where the queries"
                    " stand, View(rule, positions=...)"
                )
            positions = memory.length - size[0]
            positions = positions if number(keys) == 0 or np.ndim(keys) == 2 else keys + positions
        return dataclasses.replace(
            self,
            positions=positions,
            valid=memory.valid,
            keys=keys,
            written=memory.length,
            size=size,
            query=query,
        )

    def over(self, queries: int, keys: int, written: Where | None = None) -> "View":
        """Returns a copy of this view with the size of `queries` queries and `keys` slots, of which
        the first `written` (all if None) hold a token, keys from position 0 on, and, if it has no
        positions, the queries at the last tokens.
        """
        written = keys if written is None else written
        positions = written - queries if self.positions is None else self.positions
        return dataclasses.replace(
            self, positions=positions, keys=0, written=written, size=(queries, keys)
        )

    def among(self, i: jax.Array, j: jax.Array) -> "View":
        """Returns this view for one block of a look: queries at positions i [tq] or [B,tq], keys at
        j likewise.
        """
        return dataclasses.replace(
            self,
            positions=i if i.ndim == 2 else i[None],
            keys=j if j.ndim == 2 else j[None],
            size=(i.shape[-1], j.shape[-1]),
        )

    @property
    def i(self) -> jax.Array:
        """Positions of the queries of a look, int32 [Tq], or [B,Tq] if rows differ."""
        assert self.positions is not None
        return token_positions(self.positions, self.size[0])

    @property
    def j(self) -> jax.Array:
        """Positions of the keys of a look, int32 [Tk], or [B,Tk] if rows differ."""
        assert self.keys is not None
        return token_positions(self.keys, self.size[1])

    @property
    def rows(self) -> jax.Array:
        """`i` broadcastable to every pair, [B or 1,1,Tq,1]."""
        return rows_of(self.i)

    @property
    def columns(self) -> jax.Array:
        """`j` broadcastable to every pair, [B or 1,1,1,Tk]."""
        return columns_of(self.j)

    @property
    def distance(self) -> jax.Array:
        """j - i of every pair, int32 [Tq,Tk], or [B,Tq,Tk] if rows differ."""
        return self.j[..., None, :] - self.i[..., :, None]

    @property
    def lengths(self) -> jax.Array:
        """How many keys of each row are real, [B] integers; [1] if all are real."""
        return jnp.full(1, self.size[1]) if self.valid is None else self.valid.sum(axis=1)

    # Who sees whom

    def allowed(self) -> jax.Array | None:
        """Returns a bool array, broadcastable to [B,H,Tq,Tk], True where the rule lets the query
        see the key and the key is neither padding nor in an empty slot, or None if every pair is
        certainly allowed.
        """
        rules = self.allows(self.i, self.j)
        if self.all_valid:
            return rules
        assert self.valid is not None
        valid = self.valid[:, None, None, :]
        return valid if rules is None else valid & rules

    def mask(self, queries: int, keys: int, written: Where | None = None) -> jax.Array | None:
        """Returns what the rule and the segments allow, whether tokens are padding or not, as a
        bool array broadcastable to [B,H,Tq,Tk], or None if every pair is allowed.

        Args:
          queries: Tq.
          keys: Tk, the slots of the memory.
          written: how many of them hold a token; None: all. Query i has position `written - Tq + i`
            unless this view has positions.
        """
        look = self.over(queries, keys, written)
        return look.allows(look.i, look.j)

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array | None:
        """Returns what the rule and the segments allow, whether tokens are padding or not, for a
        block of queries at positions i and keys at j, [t] or [B,t] each, as a bool array
        broadcastable to [B,H,tq,tk], or None if all pairs are allowed.
        """
        rule = self._rule
        return None if isinstance(rule, Everything) else rule.allows(i, j)

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """False only if certainly no query at positions i0 <= i < i1 sees a key at j0 <= j < j1:
        the block may be skipped.
        """
        return self._rule.touches(i0, i1, j0, j1)

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """True only if certainly every query at positions i0 <= i < i1 sees every key at j0 <= j <
        j1: the block needs no mask.
        """
        return self._rule.everywhere(i0, i1, j0, j1)

    @property
    def is_causal(self) -> bool:
        """True only if certainly no query sees a later key."""
        return self.rule.is_causal

    @property
    def maskless(self) -> bool:
        """Returns whether a look needs no mask, or the causal one from the first token on."""
        if not self.all_valid or self.segments is not None:
            return False
        aligned = self.size[0] == self.size[1] and number(self.positions) == number(self.keys) == 0
        return type(self.rule) is Everything or (type(self.rule) is Causal and aligned)

    @property
    def all_valid(self) -> bool:
        """True only if certainly every token is real."""
        valid = concrete_value(self.valid)
        return self.valid is None or (valid is not None and bool(valid.all()))

    @property
    def _rule(self) -> Rule:
        return (
            self.rule if self.segments is None else self.rule & visibility.Segments(self.segments)
        )

    def _with(self, rule: Rule, other: "Rule | View") -> "View":
        """Returns a copy of this view with `rule` as its rule and, if `other` is a view, with the
        arrays (such as segments) that only `other` has; raises UserError for an array that both
        have, unless it is the same object.
        """
        if not isinstance(other, View):
            return dataclasses.replace(self, rule=rule)
        arrays = {}
        for name in _SHARED:
            first, second = getattr(self, name), getattr(other, name)
            if first is not None and second is not None and first is not second:
                raise UserError(
                    f"view: both sides of & or | have {name}; combine the rules and give it once,"
                    f" View(rule, {name}=...)"
                )
            arrays[name] = second if first is None else first
        return dataclasses.replace(self, rule=rule, **arrays)


def token_positions(where: Where, count: int) -> jax.Array:
    """Returns the positions of `count` consecutive tokens, int32 [count], or [B,count] if rows
    differ, computed from the first position in `where`, [] or [B], or taken from it if it has all
    of them, [B,count].
    """
    if np.ndim(where) == 2:
        positions = jnp.asarray(where, jnp.int32)
        return positions[0] if len(positions) == 1 else positions
    first = jnp.asarray(where)[:, None] if np.ndim(where) else where
    return jnp.asarray(first + jnp.arange(count, dtype=jnp.int32), jnp.int32)


def concrete_value(x: Any) -> np.ndarray | None:
    """x as a NumPy array; None if it is traced, so that its value is not known."""
    return None if x is None or isinstance(x, jax.core.Tracer) else np.asarray(x)


def number(where: Where | None) -> int | None:
    """The value of a position or length if it is one number for all rows and not traced; else None."""
    value = concrete_value(where)
    return None if value is None or np.ndim(value) else int(value)


def _rule(other: Rule | View) -> Rule:
    return other.rule if isinstance(other, View) else other


def in_order(x: jax.Array, keys: Where | None) -> tuple[jax.Array, jax.Array | None]:
    """Sorts the last axis of x [B,...,Tk] by the positions `keys` [B,Tk], and returns it with the
    inverse permutation for `out_of_order`; returns x itself and None if `keys` is not of that shape
    (None, or first positions), so that positions rise anyway.
    """
    if keys is None or np.ndim(keys) < 2:
        return x, None
    order = jnp.argsort(jnp.asarray(keys), axis=-1)
    order = order.reshape(len(order), *(1,) * (x.ndim - 2), x.shape[-1])
    return _permuted(x, order), jnp.argsort(order, axis=-1)


def out_of_order(x: jax.Array, inverse: jax.Array | None) -> jax.Array:
    """Restores the order of x before `in_order`, which gave the permutation `inverse`, None where
    it moved nothing.
    """
    return x if inverse is None else _permuted(x, inverse)


def after_each(x: jax.Array) -> jax.Array:
    """Computes for each number of x the sum of those behind it on the last axis, without itself."""
    total = jnp.flip(jnp.cumsum(jnp.flip(x, -1), axis=-1), -1)
    return jnp.concatenate([total[..., 1:], jnp.zeros_like(total[..., :1])], axis=-1)


def _permuted(x: jax.Array, order: jax.Array) -> jax.Array:
    return jnp.take_along_axis(x, jnp.broadcast_to(order, x.shape), axis=-1)


EVERYTHING = View()
CAUSAL = View(Causal())
