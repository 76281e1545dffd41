"""What a mechanism is handed: a rule, and where the queries stand.

Axis letters: B batch, H heads, Tq queries, Tk keys. Query i of Tq stands at key position `length -
Tq + i`, where `length` is the number of keys written: the last query sits on the last key, in a
full pass as in cached decoding.
"""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.visibility.bands import Causal, Window
from attnlab.attention.visibility.rule import Everything, Rule
from attnlab.errors import UserError


@flax.struct.dataclass
class Visibility:
    """Who may see whom in one look: a rule, and the position of the first query. Combines with
    rules and visibilities by & and |.

    `Visibility(causal=True, window=3)` is short for `Visibility(Causal() & Window(3))`.

    Attributes:
      rule: see `Rule`.
      offset: [] int32, position of the first query; None where the last query stands on the last
        key written.
      trees: [B or 1,T,T] int32, how words hang together in dependency trees, by position
        (`positions.syntax.structural_distance`); not a matter of who is seen, but of the same
        pairs, for schemes that ask. None where no trees are known.
    """

    rule: Rule
    offset: jax.Array | int | None
    trees: jax.Array | None

    def __init__(
        self,
        rule: Rule | None = None,
        offset: jax.Array | int | None = None,
        *,
        causal: bool = False,
        window: int | None = None,
        trees: jax.Array | None = None,
    ) -> None:
        joined: Rule = Everything() if rule is None else rule
        joined = joined & Causal() if causal else joined
        object.__setattr__(self, "rule", joined if window is None else joined & Window(window))
        object.__setattr__(self, "offset", offset)
        object.__setattr__(self, "trees", trees)

    def __and__(self, other: Rule | Visibility) -> Visibility:
        """Both must allow the pair."""
        return Visibility(
            self.rule & _rule(other), self._shared_offset(other), trees=self._shared_trees(other)
        )

    def __or__(self, other: Rule | Visibility) -> Visibility:
        """One must allow the pair."""
        return Visibility(
            self.rule | _rule(other), self._shared_offset(other), trees=self._shared_trees(other)
        )

    def __rand__(self, other: Rule) -> Visibility:
        """A rule on the left."""
        return Visibility(other & self.rule, self.offset, trees=self.trees)

    def __ror__(self, other: Rule) -> Visibility:
        """A rule on the left."""
        return Visibility(other | self.rule, self.offset, trees=self.trees)

    def positions(
        self, queries: int, keys: int, length: jax.Array | int
    ) -> tuple[jax.Array, jax.Array]:
        """Where the queries [Tq] and the keys [Tk] of a memory with `length` slots written stand,
        int32 from 0.
        """
        first = length - queries if self.offset is None else self.offset
        return (first + jnp.arange(queries, dtype=jnp.int32)).astype(jnp.int32), jnp.arange(
            keys, dtype=jnp.int32
        )

    def mask(self, queries: int, keys: int, length: jax.Array | int) -> jax.Array | None:
        """The rule as a boolean array broadcastable to [B,H,Tq,Tk], or None if every pair is
        allowed.

        Args:
          queries: Tq.
          keys: Tk, the slots of the memory.
          length: [] int32, the slots written; query i stands at position `length - Tq + i` unless
            there is an `offset`.
        """
        return self.allows(*self.positions(queries, keys, length))

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array | None:
        """The rule for a block of queries at positions i [tq] and keys at j [tk], broadcastable to
        [B,H,tq,tk]; None for all allowed.
        """
        return None if isinstance(self.rule, Everything) else self.rule.allows(i, j)

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """False only if certainly no query at positions i0 <= i < i1 sees a key at j0 <= j < j1:
        the block may be skipped.
        """
        return self.rule.touches(i0, i1, j0, j1)

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """True only if certainly every query at positions i0 <= i < i1 sees every key at j0 <= j <
        j1: the block needs no mask.
        """
        return self.rule.everywhere(i0, i1, j0, j1)

    @property
    def is_causal(self) -> bool:
        """True only if certainly no query sees a later key."""
        return self.rule.is_causal

    def _shared_offset(self, other: Rule | Visibility) -> jax.Array | int | None:
        """The offset of whichever has one."""
        theirs = other.offset if isinstance(other, Visibility) else None
        if self.offset is not None and theirs is not None and theirs is not self.offset:
            raise UserError(
                "visibility: both sides of & or | have an offset; combine the rules and give it"
                " once, Visibility(rule, offset)"
            )
        return theirs if self.offset is None else self.offset

    def _shared_trees(self, other: Rule | Visibility) -> jax.Array | None:
        """The trees of whichever has them, this one's first."""
        return other.trees if self.trees is None and isinstance(other, Visibility) else self.trees


def _rule(other: Rule | Visibility) -> Rule:
    return other.rule if isinstance(other, Visibility) else other


EVERYTHING = Visibility()
CAUSAL = Visibility(Causal())
