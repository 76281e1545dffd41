"""What a rule is, how rules combine, and the rules that depend only on the distance i - j.

    a & b          both allow the pair        a | b    either does        PerHead    one rule for each head
    Causal         j <= i
    Window(w)      |i - j| < w            w keys on each side, the query's own counted: 2 w - 1 in all
    Stride(r)      (i - j) mod r = 0
    dilated(w, r)  j = i + r m, |m| < w

A rule is a function of absolute positions, so it can be applied to any block of queries and keys,
in a full pass and in cached decoding. Its numbers are static: two rules with the same numbers are
equal, hash alike and share a compiled program. Its arrays are leaves of the pytree, may be traced,
and are indexed by position (see `given.py`).

Under `Causal` the window is the usual one of w keys *including self*, 0 <= i - j < w
(`local_window_size=(w - 1, 0)` of `jax.nn.dot_product_attention`). Two-sided conventions elsewhere:
"W on each side and self", |i - j| <= W, is `Window(W + 1)`; Longformer's "w in total and self" is
`Window(w // 2 + 1)`. A window per layer sees L (w - 1) + 1 positions after L causal layers, a
dilated one L r (w - 1) + 1. Cost in a kernel that skips blocks: 4 T w d FLOPs for a causal window
or a dilated one, against 4 T^2 d.

Axis letters: B batch, H heads, tq and tk queries and keys of the block. Source: D. Bahdanau, K. Cho,
Y. Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate", ICLR 2015
(everything); I. Beltagy, M. E. Peters, A. Cohan, "Longformer: The
Long-Document Transformer", 2020, section 3.1 (windows, plain and dilated); A. Vaswani et al.,
"Attention Is All You Need", NeurIPS 2017, section 3.2.3 (causal).
"""

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.errors import UserError, at_least


class Rule:
    """Base of every rule. A subclass implements `allows`, and `touches`, `everywhere` and
    `is_causal` if it can answer them exactly.
    """

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """Whether queries at positions i may see keys at positions j, [tq] and [tk], or [B,tq] and
        [B,tk] where rows stand elsewhere: boolean [1 or B, 1 or H, 1 or tq, 1 or tk].

        `grid` makes the two broadcast to every pair.
        """
        raise NotImplementedError

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """Returns False only if certainly no query at i0 <= i < i1 sees a key at j0 <= j < j1; both
        ranges hold something; this base always returns True.
        """
        return True

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """True only if certainly every query at i0 <= i < i1 sees every key at j0 <= j < j1."""
        return False

    @property
    def is_causal(self) -> bool:
        """True only if certainly no query sees a later key."""
        return False

    @property
    def window(self) -> int | None:
        """Returns the least w such that certainly no query sees a key that stands w or more before
        it, or None if there may be none, as always in this base.
        """
        return None

    def __and__(self, other: "Rule") -> "Rule":
        """Returns the rule that allows a pair of query and key if both rules allow it, or
        NotImplemented if `other` is not a rule.
        """
        if not isinstance(other, Rule):
            return NotImplemented
        rules = [
            rule
            for rule in _parts(self, AllOf) + _parts(other, AllOf)
            if not isinstance(rule, Everything)
        ]
        return AllOf(tuple(rules)) if len(rules) > 1 else (rules or [Everything()])[0]

    def __or__(self, other: "Rule") -> "Rule":
        """Returns the rule that allows a pair of query and key if at least one of the two rules
        allows it, or NotImplemented if `other` is not a rule.
        """
        if not isinstance(other, Rule):
            return NotImplemented
        rules = _parts(self, AnyOf) + _parts(other, AnyOf)
        whole = any(isinstance(rule, Everything) for rule in rules)
        return Everything() if whole else AnyOf(tuple(rules))


@flax.struct.dataclass
class Everything(Rule):
    """Every query sees every key."""

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        return jnp.ones((1, 1, 1, 1), bool)

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        return True


@flax.struct.dataclass
class AllOf(Rule):
    """All rules must allow the pair; written `a & b`.

    Attributes:
      rules: at least one.
    """

    rules: tuple[Rule, ...]

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """Returns whether every one of the rules lets the queries at positions i see the keys at
        positions j: a bool array [1 or B,1 or H,1 or tq,1 or tk]. See `Rule.allows`.
        """
        first, *masks = (rule.allows(i, j) for rule in self.rules)
        for other in masks:
            first = first & other
        return first

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        return all(rule.touches(i0, i1, j0, j1) for rule in self.rules)

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        return all(rule.everywhere(i0, i1, j0, j1) for rule in self.rules)

    @property
    def is_causal(self) -> bool:
        """See `Rule.is_causal`."""
        return any(rule.is_causal for rule in self.rules)

    @property
    def window(self) -> int | None:
        """See `Rule.window`."""
        return min((w for rule in self.rules if (w := rule.window) is not None), default=None)


@flax.struct.dataclass
class _OneOf(Rule):
    """Base of what may allow a pair if one of its rules does."""

    rules: tuple[Rule, ...]

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        return any(rule.touches(i0, i1, j0, j1) for rule in self.rules)

    @property
    def is_causal(self) -> bool:
        """See `Rule.is_causal`."""
        return all(rule.is_causal for rule in self.rules)

    @property
    def window(self) -> int | None:
        """See `Rule.window`; the largest of the rules, None if one has none."""
        windows = [rule.window for rule in self.rules]
        return None if None in windows else max(w for w in windows if w is not None)


@flax.struct.dataclass
class AnyOf(_OneOf):
    """One of the rules must allow the pair; written `a | b`.

    Attributes:
      rules: at least one.
    """

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """Returns whether at least one of the rules lets the queries at positions i see the keys at
        positions j: a bool array [1 or B,1 or H,1 or tq,1 or tk]. See `Rule.allows`.
        """
        first, *masks = (rule.allows(i, j) for rule in self.rules)
        for other in masks:
            first = first | other
        return first

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        return any(rule.everywhere(i0, i1, j0, j1) for rule in self.rules)


@flax.struct.dataclass
class PerHead(_OneOf):
    """Head h obeys the h-th rule, for example another dilation or another part of a factorised
    pattern.

    Attributes:
      rules: H rules, none of which differs by head itself.
    """

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """Evaluates the rule of each head for queries at positions i and keys at positions j, and
        returns the results stacked along the head axis, bool [B or 1,H,tq,tk]; raises UserError if
        one of the rules distinguishes heads itself. See `Rule.allows`.
        """
        heads = jnp.broadcast_arrays(*(rule.allows(i, j) for rule in self.rules))
        if heads[0].shape[1] != 1:
            raise UserError(
                f"PerHead: a rule of it has {heads[0].shape[1]} heads of its own; each must"
                " have one"
            )
        return jnp.concatenate(heads, axis=1)

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        return all(rule.everywhere(i0, i1, j0, j1) for rule in self.rules)


def grid(i: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Positions [tq] and [tk], or [B,tq] and [B,tk], as [1 or B,1,tq,1] and [1 or B,1,1,tk], which
    broadcast to every pair.
    """
    return rows_of(i), columns_of(j)


def rows_of(i: jax.Array) -> jax.Array:
    """Positions of queries [tq] or [B,tq] as [1 or B,1,tq,1]."""
    return i[:, None, :, None] if i.ndim == 2 else i[None, None, :, None]


def columns_of(j: jax.Array) -> jax.Array:
    """Positions of keys [tk] or [B,tk] as [1 or B,1,1,tk]."""
    return j[:, None, None, :] if j.ndim == 2 else j[None, None, None, :]


def distances(i0: int, i1: int, j0: int, j1: int) -> tuple[int, int]:
    """The least and the greatest i - j of a block; every integer between them occurs."""
    return i0 - (j1 - 1), (i1 - 1) - j0


def _parts(rule: Rule, kind: type[AllOf] | type[AnyOf]) -> list[Rule]:
    """The rules of a combination of this kind, or the rule itself."""
    return list(rule.rules) if isinstance(rule, kind) else [rule]


@flax.struct.dataclass
class Causal(Rule):
    """A query sees no later key, j <= i."""

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        i, j = grid(i, j)
        return j <= i

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        return distances(i0, i1, j0, j1)[1] >= 0

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        return distances(i0, i1, j0, j1)[0] >= 0

    @property
    def is_causal(self) -> bool:
        """See `Rule.is_causal`."""
        return True


@flax.struct.dataclass
class Window(Rule):
    """A query sees the `width` last keys up to itself, its own included, and as many after it: |i -
    j| < width.

    Attributes:
      width: from 1 (only its own).
    """

    width: int = flax.struct.field(pytree_node=False)

    def __post_init__(self) -> None:
        at_least(1, "Window", width=self.width)

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        i, j = grid(i, j)
        return abs(i - j) < self.width

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        low, high = distances(i0, i1, j0, j1)
        return low < self.width and high > -self.width

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        low, high = distances(i0, i1, j0, j1)
        return -self.width < low and high < self.width

    @property
    def is_causal(self) -> bool:
        """See `Rule.is_causal`."""
        return self.width == 1

    @property
    def window(self) -> int:
        """See `Rule.window`."""
        return self.width


@flax.struct.dataclass
class Stride(Rule):
    """A query sees every `stride`-th key, counted from itself both ways: (i - j) mod stride = 0.

    Attributes:
      stride: from 1 (every key).
    """

    stride: int = flax.struct.field(pytree_node=False)

    def __post_init__(self) -> None:
        at_least(1, "Stride", stride=self.stride)

    def allows(self, i: jax.Array, j: jax.Array) -> jax.Array:
        """See `Rule.allows`."""
        i, j = grid(i, j)
        return (i - j) % self.stride == 0

    def touches(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.touches`."""
        low, high = distances(i0, i1, j0, j1)
        return high // self.stride * self.stride >= low

    def everywhere(self, i0: int, i1: int, j0: int, j1: int) -> bool:
        """See `Rule.everywhere`."""
        low, high = distances(i0, i1, j0, j1)
        return self.stride == 1 or (low == high and low % self.stride == 0)


def dilated(width: int, dilation: int) -> Rule:
    """Builds the rule of the dilated window: `width` keys on each side at gaps of `dilation`, the
    query's own counted, j = i + dilation m, |m| < width; raises UserError if one of the two is
    below 1.
    """
    at_least(1, "dilated", width=width, dilation=dilation)
    return Window((width - 1) * dilation + 1) & Stride(dilation)
