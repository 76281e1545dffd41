"""Rules that a config can name; their fields are numbers. Rules that need arrays (segments, marked
tokens, any mask) can only be used from Python.

`all_of` and `any_of` join two rules, each a node of its own, and either may be a join again:

    decoder_visibility = {"name": "any_of", "one": {"name": "window", "width": 64}, "other":
    {"name": "first", "length": 4}}

The formulas, the costs and the sources stand with the rules themselves: `rule`, `sparse`, `given`.
"""

import dataclasses
from typing import ClassVar

from attnlab.attention import visibility as rules
from attnlab.attention.visibility import VISIBILITIES, Rule
from attnlab.config.registry import Part, Parts, made
from attnlab.errors import UserError, at_least
from attnlab.layers.by_layer import ByLayer


def full() -> Rule:
    """Every query sees every key.

    Card: whole; Bahdanau et al., Jointly Learning to Align and Translate, ICLR 2015; time T^2.
    """
    return rules.Everything()


def causal() -> Rule:
    """A query sees no later key, j <= i.

    Card: whole; Vaswani et al., Attention Is All You Need, NeurIPS 2017; time T^2.
    """
    return rules.Causal()


def window(width: int = 128) -> Rule:
    """Sliding window: `width` keys on each side, the query's own counted, |i - j| < width; under
    causal the last `width`.

    Card: band; Beltagy et al., Longformer, 2020; time T w.
    """
    return rules.Window(width)


def dilated(width: int = 64, dilation: int = 2) -> Rule:
    """Sliding window with gaps: `width` keys on each side, every `dilation`-th.

    Card: band; Beltagy et al., Longformer, 2020; time T w.
    """
    return rules.dilated(width, dilation)


def stride(stride: int = 32) -> Rule:
    """Every `stride`-th key, counted from the query both ways.

    Card: strided; Child et al., Generating Long Sequences with Sparse Transformers, 2019;
    time T^2 / l.
    """
    return rules.Stride(stride)


def local(block: int = 64, reach: int = 0) -> Rule:
    """The keys of the query's own block, and of `reach` blocks on either side.

    Card: block; Parmar et al., Image Transformer, ICML 2018; time T b.
    """
    return rules.Local(block, reach)


def summary(stride: int = 32, width: int = 8, turn: int = 0) -> Rule:
    """The last `width` keys of every block of `stride`; `turn` counts runs of `width` from the
    block's end.

    Card: strided; Child et al., Generating Long Sequences with Sparse Transformers, 2019;
    time T^2 c / l.
    """
    return rules.Summary(stride, width, turn)


def first(length: int = 1) -> Rule:
    """The first `length` keys, j < length.

    Card: global; Raffel et al., Exploring the Limits of Transfer Learning, JMLR 2020; time T n.
    """
    at_least(0, "first", length=length)
    return rules.Prefix(length)


def prefix(length: int = 16) -> Rule:
    """Prefix-LM: the first `length` keys, and all keys up to the query.

    Card: whole; Raffel et al., Exploring the Limits of Transfer Learning, JMLR 2020; time T^2.
    """
    at_least(0, "prefix", length=length)
    return rules.prefix_lm(length)


def strided(stride: int = 32) -> Rule:
    """Sparse Transformer, strided: j <= i, the last `stride` keys and every `stride`-th before
    them.

    Card: pattern; Child et al., Generating Long Sequences with Sparse Transformers, 2019;
    time T l + T^2 / l.
    """
    return rules.sparse_strided(stride)


def fixed(stride: int = 32, summary: int = 8) -> Rule:
    """Sparse Transformer, fixed: j <= i, the query's own block and the last `summary` keys of every
    block.

    Card: pattern; Child et al., Generating Long Sequences with Sparse Transformers, 2019;
    time T l + T^2 c / l.
    """
    return rules.sparse_fixed(stride, summary)


def tokens(positions: tuple[int, ...] = (0,)) -> Rule:
    """Global tokens at these `positions` see all and are seen by all; no other pair is allowed.

    Card: global; Beltagy et al., Longformer, 2020; time T g.
    """
    return rules.Global(_positions("global", positions))


def longformer(window: int = 128, tokens: tuple[int, ...] = (0,), dilation: int = 1) -> Rule:
    """Longformer: an even `window` in total around the query, and global `tokens` by position.

    Card: pattern; Beltagy et al., Longformer, 2020; time T (w + g).
    """
    return rules.longformer(window, _positions("longformer", tokens), dilation)


def bigbird(
    length: int = 4096, heads: int = 1, block: int = 64, random: int = 3, seed: int = 0
) -> Rule:
    """BigBird for sequences of up to `length`: first and last block global, neighbouring blocks,
    `random` others for each head.

    `length` decides where the last block is and which are drawn; it does not follow the batch, so
    padding changes nothing.

    Card: pattern; Zaheer et al., Big Bird, NeurIPS 2020; time T (5 + r) b.
    """
    return rules.bigbird(length, heads, block, random, seed)


def all_of(one: Part, other: Part) -> Rule:
    """Both rules must allow the pair.

    Card: join; as in Child et al., Generating Long Sequences with Sparse Transformers, 2019.
    """
    return made(VISIBILITIES, one)() & made(VISIBILITIES, other)()


def any_of(one: Part, other: Part) -> Rule:
    """One of the rules must allow the pair.

    Card: join; as in Child et al., Generating Long Sequences with Sparse Transformers, 2019.
    """
    return made(VISIBILITIES, one)() | made(VISIBILITIES, other)()


def per_head(one: Part, other: Part, heads: int = 4) -> Rule:
    """The first half of the `heads` of the mechanism, rounded up, obeys `one`, the rest obeys
    `other`.

    Card: join; as in Child et al., Generating Long Sequences with Sparse Transformers, 2019.
    """
    at_least(2, "per_head", heads=heads)
    pair = made(VISIBILITIES, one)(), made(VISIBILITIES, other)()
    return rules.PerHead(tuple(pair[2 * head >= heads + heads % 2] for head in range(heads)))


@dataclasses.dataclass(frozen=True)
class RuleByLayer(ByLayer):
    """One of two rules in each layer of a stack, such as [window, window, full]. The fields are
    those of `ByLayer`.

    Card: pattern; Child et al., Generating Long Sequences with Sparse Transformers, 2019.
    """

    parts: ClassVar[Parts] = {"one": VISIBILITIES, "other": VISIBILITIES}


for _join in (all_of, any_of, per_head):
    _join.parts = {"one": VISIBILITIES, "other": VISIBILITIES}  # type: ignore[attr-defined]


def _positions(name: str, positions: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the tuple `positions` of global tokens unchanged; raises UserError, naming the
    visibility by `name`, unless all are integers of at least 0.
    """
    if not all(type(position) is int and position >= 0 for position in positions):
        raise UserError(
            f"visibility {name}: global tokens {positions!r} must be positions, whole numbers"
            " from 0"
        )
    return positions
