"""Who is there, where they stand, and who may see whom: the one object that every look takes.

    read(query, memory, CAUSAL & Window(256))              the last query stands on the last key
    read(query, memory, View(positions=t))                 the first query stands at t, the others follow
    read(query, memory, View(CAUSAL.rule, positions=at))   at [B]: a first position for each row; [B,Tq]: one for each query

A system hands over a rule and, where it knows better than "the last", the positions of the queries.
`onto` joins that with a memory and a query; alignments, position schemes and kernels get the
result. Positions stay one number for all rows as long as the caller has one, so that kernels know
while tracing which blocks nobody sees. Axis letters: B batch, H heads, Tq queries, Tk keys.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.visibility.bands import Causal
from attnlab.attention.visibility.given import Segments
from attnlab.attention.visibility.rule import Everything, Rule, columns_of, rows_of
from attnlab.errors import UserError

Where = jax.Array | np.ndarray | int
"""Where the tokens of a sequence stand, int32: a number or [], the first one's position, which the
others follow; [B], the same for each row; [B or 1,T], the position of each token."""

_SHARED = ("positions", "valid", "segments", "trees")


class Remembered(Protocol):
    """What a view asks of a memory; see `Memory`."""

    valid: Any
    length: Any
    positions: Any


@flax.struct.dataclass
class View:
    """Who sees whom in one look: a rule, and the tokens that it is about. Combines with rules and
    views by & and |.

    Attributes:
      rule: a statement about the positions of a query and a key, see `Rule`.
      positions: `Where` the queries stand; None where the last one stands on the last key written.
      valid: [B,T] bool, True at real tokens, of the piece that a `mix` is given, and in a look of
        the keys [B,Tk]; None for all.
      segments: [B or 1,T] integers, by position: only tokens with the same number see one another,
        whatever the rule; None where all are one text.
      trees: [B or 1,T,T] int32, how words hang together in dependency trees, by position
        (`positions.syntax.structural_distance`), for schemes that ask; None where none are known.

    What `onto` adds, of one look:
      keys: `Where` the keys stand. written: how many slots of the memory are written, [] or [B].
      size: Tq and Tk. query: [B,Tq,dq], what asks.
      seen: broadcastable to [B,H,Tq,1] int32, how many keys each query may see. Only a kernel that
        hands over the keys in blocks has to give it, for a mask of one block cannot tell; None: the
        mask is of the whole row.
    """

    rule: Rule = Everything()
    positions: Where | None = None
    valid: jax.Array | None = None
    segments: jax.Array | None = None
    trees: jax.Array | None = None
    keys: Where | None = None
    written: Where | None = None
    query: jax.Array | None = None
    seen: jax.Array | None = None
    size: tuple[int, int] = flax.struct.field(pytree_node=False, default=(0, 0))

    def __and__(self, other: Rule | View) -> View:
        """Both must allow the pair."""
        return self._with(self.rule & _rule(other), other)

    def __or__(self, other: Rule | View) -> View:
        """One must allow the pair."""
        return self._with(self.rule | _rule(other), other)

    def __rand__(self, other: Rule) -> View:
        """A rule on the left."""
        return self._with(other & self.rule, other)

    def __ror__(self, other: Rule) -> View:
        """A rule on the left."""
        return self._with(other | self.rule, other)

    # A look

    def onto(self, memory: Remembered, query: jax.Array) -> View:
        """The view of a look from query [B,Tq,dq] at a memory: keys and validity are the memory's.

        Raises:
          ValueError: the keys stand anywhere, each with a position of its own, and this view does
            not say where the queries stand.
        """
        size = query.shape[1], memory.valid.shape[1]
        positions, keys = self.positions, 0 if memory.positions is None else memory.positions
        if positions is None:
            if np.ndim(keys) == 2:
                raise ValueError(
                    "the keys of this memory have positions of their own; say where the queries"
                    " stand, View(rule, positions=...)"
                )
            positions = memory.length - size[0]
            positions = positions if _is_zero(keys) else keys + positions
        return dataclasses.replace(
            self,
            positions=positions,
            valid=memory.valid,
            keys=keys,
            written=memory.length,
            size=size,
            query=query,
        )

    def over(self, queries: int, keys: int, written: Where | None = None) -> View:
        """The view of a look at `keys` slots, of which `written` (None: all) hold a token, all
        real.
        """
        written = keys if written is None else written
        positions = written - queries if self.positions is None else self.positions
        return dataclasses.replace(
            self, positions=positions, keys=0, written=written, size=(queries, keys)
        )

    def among(self, i: jax.Array, j: jax.Array) -> View:
        """The view of any block of a look: queries at positions i [tq] or [B,tq], keys at j
        likewise.
        """
        return dataclasses.replace(
            self,
            positions=i if i.ndim == 2 else i[None],
            keys=j if j.ndim == 2 else j[None],
            size=(i.shape[-1], j.shape[-1]),
        )

    @property
    def i(self) -> jax.Array:
        """Positions of the queries of a look, int32 [Tq], or [B,Tq] where rows differ."""
        assert self.positions is not None
        return standing(self.positions, self.size[0])

    @property
    def j(self) -> jax.Array:
        """Positions of the keys of a look, int32 [Tk], or [B,Tk] where rows differ."""
        assert self.keys is not None
        return standing(self.keys, self.size[1])

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
        """j - i of every pair, int32 [Tq,Tk], or [B,Tq,Tk] where rows differ."""
        return self.j[..., None, :] - self.i[..., :, None]

    @property
    def lengths(self) -> jax.Array:
        """Real keys of each row of a look, [B] integers; [1] where all are real."""
        return jnp.full(1, self.size[1]) if self.valid is None else self.valid.sum(axis=1)

    # Who sees whom

    def allowed(self) -> jax.Array | None:
        """Who may see whom in a look, padding and slots without a token left out, bool
        broadcastable to [B,H,Tq,Tk]; None if all pairs certainly may.
        """
        rules = self.allows(self.i, self.j)
        if self.all_valid:
            return rules
        assert self.valid is not None
        valid = self.valid[:, None, None, :]
        return valid if rules is None else valid & rules

    def mask(self, queries: int, keys: int, written: Where | None = None) -> jax.Array | None:
        """The rule as a boolean array broadcastable to [B,H,Tq,Tk], or None if every pair is
        allowed.

        Args:
          queries: Tq.
          keys: Tk, the slots of the memory.
          written: how many of them hold a token; None: all. Query i stands at `written - Tq + i`
            unless this view has positions.
        """
        look = self.over(queries, keys, written)
        return look.allows(look.i, look.j)

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array | None:
        """The rule for a block of queries at positions i and keys at j, [t] or [B,t] each,
        broadcastable to [B,H,tq,tk]; None for all allowed.
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
    def all_valid(self) -> bool:
        """True only if certainly every token is real."""
        valid = known(self.valid)
        return self.valid is None or (valid is not None and bool(valid.all()))

    @property
    def _rule(self) -> Rule:
        return self.rule if self.segments is None else self.rule & Segments(self.segments)

    def _with(self, rule: Rule, other: Rule | View) -> View:
        """This view under another rule, with what only the other one knows."""
        if not isinstance(other, View):
            return dataclasses.replace(self, rule=rule)
        more = {}
        for name in _SHARED:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine is not theirs:
                raise UserError(
                    f"view: both sides of & or | have {name}; combine the rules and give it once,"
                    f" View(rule, {name}=...)"
                )
            more[name] = theirs if mine is None else mine
        return dataclasses.replace(self, rule=rule, **more)


def standing(where: Where, count: int) -> jax.Array:
    """Positions of `count` tokens that stand `where`: int32 [count], or [B,count] where rows
    differ.
    """
    if np.ndim(where) == 2:
        at = jnp.asarray(where, jnp.int32)
        return at[0] if len(at) == 1 else at
    first = jnp.asarray(where)[:, None] if np.ndim(where) else where
    return jnp.asarray(first + jnp.arange(count, dtype=jnp.int32), jnp.int32)


def known(x: Any) -> np.ndarray | None:
    """x as a NumPy array where its value is known now; None while it is traced."""
    return None if x is None or isinstance(x, jax.core.Tracer) else np.asarray(x)


def _is_zero(where: Where) -> bool:
    at = known(where)
    return at is not None and np.ndim(at) == 0 and int(at) == 0


def _rule(other: Rule | View) -> Rule:
    return other.rule if isinstance(other, View) else other


EVERYTHING = View()
CAUSAL = View(Causal())
