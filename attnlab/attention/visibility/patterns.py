"""Rules that a config can name; their fields are numbers. Rules that need arrays (segments, marked
tokens, any mask) can only be used from Python.

`all_of` and `any_of` join two rules, each a node of its own, and either may be a join again:

    decoder_visibility = {"name": "any_of", "one": {"name": "window", "width": 64}, "other":
    {"name": "first", "length": 4}}

The formulas, the costs and the sources stand with the rules themselves: `rule`,
`sparse_transformer`, `global_tokens`, `random_blocks`, `given`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from attnlab.attention import visibility as rules
from attnlab.attention.visibility import VISIBILITIES, Rule
from attnlab.attention.visibility.rule import at_least
from attnlab.config.registry import Part, Parts, made
from attnlab.errors import UserError
from attnlab.layers.by_layer import ByLayer
from attnlab.layers.cards import Card, carrying

SPARSE = "Child et al., Generating Long Sequences with Sparse Transformers, 2019"
LONG = "Beltagy et al., Longformer, 2020"
LIMITS = "Raffel et al., Exploring the Limits of Transfer Learning, JMLR 2020"


@carrying(
    Card(
        "whole", 2015, "Bahdanau et al., Jointly Learning to Align and Translate, ICLR 2015", "T^2"
    )
)
def full() -> Rule:
    """Every query sees every key."""
    return rules.Everything()


@carrying(Card("whole", 2017, "Vaswani et al., Attention Is All You Need, NeurIPS 2017", "T^2"))
def causal() -> Rule:
    """A query sees no later key, j <= i."""
    return rules.Causal()


@carrying(Card("band", 2020, LONG, "T w"))
def window(width: int = 128) -> Rule:
    """Sliding window: `width` keys on each side, the query's own counted, |i - j| < width; under
    causal the last `width`.
    """
    return rules.Window(width)


@carrying(Card("band", 2020, LONG, "T w"))
def dilated(width: int = 64, dilation: int = 2) -> Rule:
    """Sliding window with gaps: `width` keys on each side, every `dilation`-th."""
    return rules.dilated(width, dilation)


@carrying(Card("strided", 2019, SPARSE, "T^2 / l"))
def stride(stride: int = 32) -> Rule:
    """Every `stride`-th key, counted from the query both ways."""
    return rules.Stride(stride)


@carrying(Card("block", 2018, "Parmar et al., Image Transformer, ICML 2018", "T b"))
def local(block: int = 64, reach: int = 0) -> Rule:
    """The keys of the query's own block, and of `reach` blocks on either side."""
    return rules.Local(block, reach)


@carrying(Card("strided", 2019, SPARSE, "T^2 c / l"))
def summary(stride: int = 32, width: int = 8, turn: int = 0) -> Rule:
    """The last `width` keys of every block of `stride`; `turn` counts runs of `width` from the
    block's end.
    """
    return rules.Summary(stride, width, turn)


@carrying(Card("global", 2020, LIMITS, "T n"))
def first(length: int = 1) -> Rule:
    """The first `length` keys, j < length."""
    at_least(0, "first: length", length)
    return rules.Prefix(length)


@carrying(Card("whole", 2020, LIMITS, "T^2"))
def prefix(length: int = 16) -> Rule:
    """Prefix-LM: the first `length` keys, and all keys up to the query."""
    at_least(0, "prefix: length", length)
    return rules.prefix_lm(length)


@carrying(Card("pattern", 2019, SPARSE, "T l + T^2 / l"))
def strided(stride: int = 32) -> Rule:
    """Sparse Transformer, strided: j <= i, the last `stride` keys and every `stride`-th before
    them.
    """
    return rules.sparse_strided(stride)


@carrying(Card("pattern", 2019, SPARSE, "T l + T^2 c / l"))
def fixed(stride: int = 32, summary: int = 8) -> Rule:
    """Sparse Transformer, fixed: j <= i, the query's own block and the last `summary` keys of every
    block.
    """
    return rules.sparse_fixed(stride, summary)


@carrying(Card("global", 2020, LONG, "T g"))
def tokens(positions: tuple[int, ...] = (0,)) -> Rule:
    """Global tokens at these `positions` see all and are seen by all; no other pair is allowed."""
    return rules.Global(_positions("global", positions))


@carrying(Card("pattern", 2020, LONG, "T (w + g)"))
def longformer(window: int = 128, tokens: tuple[int, ...] = (0,), dilation: int = 1) -> Rule:
    """Longformer: an even `window` in total around the query, and global `tokens` by position."""
    return rules.longformer(window, _positions("longformer", tokens), dilation)


@carrying(Card("pattern", 2020, "Zaheer et al., Big Bird, NeurIPS 2020", "T (5 + r) b"))
def bigbird(
    length: int = 4096, heads: int = 1, block: int = 64, random: int = 3, seed: int = 0
) -> Rule:
    """BigBird for sequences of up to `length`: first and last block global, neighbouring blocks,
    `random` others for each head.

    `length` decides where the last block is and which are drawn; it does not follow the batch, so
    padding changes nothing.
    """
    return rules.bigbird(length, heads, block, random, seed)


@carrying(Card("join", 2019, f"as in {SPARSE}"))
def all_of(one: Part, other: Part) -> Rule:
    """Both rules must allow the pair."""
    return made(VISIBILITIES, one)() & made(VISIBILITIES, other)()


@carrying(Card("join", 2019, f"as in {SPARSE}"))
def any_of(one: Part, other: Part) -> Rule:
    """One of the rules must allow the pair."""
    return made(VISIBILITIES, one)() | made(VISIBILITIES, other)()


@carrying(Card("join", 2019, f"as in {SPARSE}"))
def per_head(one: Part, other: Part, heads: int = 4) -> Rule:
    """The first half of the `heads` of the mechanism, rounded up, obeys `one`, the rest obeys
    `other`.
    """
    at_least(2, "per_head: heads", heads)
    pair = made(VISIBILITIES, one)(), made(VISIBILITIES, other)()
    return rules.PerHead(tuple(pair[2 * head >= heads + heads % 2] for head in range(heads)))


@dataclasses.dataclass(frozen=True)
class RuleByLayer(ByLayer):
    """One of two rules in each layer of a stack, such as [window, window, full]. The fields are
    those of `ByLayer`.
    """

    parts: ClassVar[Parts] = {"one": VISIBILITIES, "other": VISIBILITIES}
    card: ClassVar[Card] = Card("pattern", 2019, SPARSE)


for _join in (all_of, any_of, per_head):
    _join.parts = {"one": VISIBILITIES, "other": VISIBILITIES}  # type: ignore[attr-defined]


def _positions(name: str, positions: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the positions of global tokens unchanged; raises UserError unless all are integers
    from 0 on.
    """
    if not all(type(position) is int and position >= 0 for position in positions):
        raise UserError(
            f"visibility {name}: global tokens {positions!r} must be positions, whole numbers"
            " from 0"
        )
    return positions
