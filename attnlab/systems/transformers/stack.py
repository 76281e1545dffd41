"""What all Transformers share: embeddings with positions, and stacks of n blocks.

    x_0      = s embedding + positions                       s = sqrt(d) if scaled
    x        = block_i(x), i = 0 .. n - 1                    `layers/block.py`
    h        = N(x) in the placements that leave x without a norm, else x

A system derives from `Stacked`, says in `setup` what mixers a layer has, and in a function how a
layer calls them; the loop over the layers is here.

Axis letters: B batch, T length, d model width.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.view import View
from attnlab.attention.visibility import VISIBILITIES, Rule
from attnlab.config.registry import Part, kind, made
from attnlab.errors import UserError
from attnlab.layers import FEED_FORWARDS, NORMS
from attnlab.layers.block import TOPPED, Block, Placement
from attnlab.layers.by_layer import of_layer
from attnlab.layers.dense import Dropout
from attnlab.layers.norms import Norm
from attnlab.systems.protocol import System

Mixers = tuple[tuple[str, Callable[..., Any]], ...]
"""Name and factory of every mixer of a layer, as `Block` takes them."""
Step = Callable[[Any, int, jax.Array, Any], tuple[jax.Array, Any]]
"""`step(block, number, x, given)`: x [B,T,d] through a layer to x, and what the layer leaves."""


class Stacked(System, kw_only=True):
    """Base of the Transformers. Not a system by itself.

    Attributes:
      positions: of embeddings.
      width: d. layers: n. hidden: of the feed-forward layers.
      norm: the placement of norms and residual sums, see `layers/block.py`.
      normalisation: the norm itself.
      feed_forward: the feed-forward layers; each gets `hidden` and `dropout`.
      scaled_embedding: whether embeddings are multiplied with sqrt(d).
      dropout: rate on embeddings, sub-layer outputs and inside the feed-forward layers.
    """

    positions: Callable[..., PositionScheme]
    width: int = 128
    layers: int = 2
    hidden: int = 512
    norm: Placement = "pre"
    normalisation: Part = "layer_norm"
    feed_forward: Part = "gelu_tanh"
    scaled_embedding: bool = False
    dropout: float = 0.1

    parts = {
        "positions": POSITIONS,
        "normalisation": NORMS,
        "feed_forward": FEED_FORWARDS,
    }

    def setup(self) -> None:
        self.scheme = self.positions(name="positions")
        if self.scheme.hooks - {"embedding"}:
            raise UserError(
                f"system.positions={type(self.scheme).__name__} acts inside attention; set it as"
                " the positions of the self-attentions"
            )
        self.drop = Dropout(self.dropout)

    def blocks(self, mixers: Mixers, kind: Callable[..., Any] = Block, count: int = 0) -> list[Any]:
        """The blocks of a stack, for `setup`, around these mixers; see `by_layer` for those that
        differ. `count`: how many, if not `layers`.
        """
        make = made(FEED_FORWARDS, self.feed_forward)
        return [
            kind(
                self.width,
                tuple((name, of_layer(one, number)) for name, one in mixers),
                feed_forward_factory=functools.partial(make, self.hidden, self.dropout),
                norm=self.normaliser,
                placement=self.norm,
                dropout=self.dropout,
            )
            for number in range(count or self.layers)
        ]

    @property
    def normaliser(self) -> Callable[..., Norm]:
        """Makes a norm."""
        return made(NORMS, self.normalisation)

    @property
    def topped(self) -> bool:
        """Whether a norm follows the last layer."""
        return self.norm in TOPPED

    def embedded(
        self, words: jax.Array, at: jax.Array, scheme: PositionScheme | None = None
    ) -> jax.Array:
        """Embeddings [B,T,d] at positions [T] or [B,T] to x_0 [B,T,d]; `scheme`: of a stack that
        has positions of its own.

        Raises:
          UserError: texts that share rows, or whole rows, longer than the positions reach.
        """
        scheme = self.scheme if scheme is None else scheme
        longest = scheme.longest
        if longest is not None and words.shape[1] > longest:
            raise UserError(
                f"rows of {words.shape[1]} tokens, but positions end at {longest}; lower"
                " config.batch.max_length, or take positions without an end"
            )
        scaled = words * math.sqrt(self.width) if self.scaled_embedding else words
        return scheme.embed(scaled, at)

    def through(
        self, stack: Sequence[Block], x: jax.Array, step: Step, given: Sequence[Any] | None = None
    ) -> tuple[jax.Array, list[Any]]:
        """x [B,T,d] through a stack, and what its layers leave.

        Args:
          stack: the blocks.
          x: [B,T,d].
          step: one layer; see `Step`.
          given: what each layer is given, such as its state; None for nothing.
        """
        left = []
        for number, block in enumerate(stack):
            x, one = step(block, number, x, None if given is None else given[number])
            left.append(one)
        return x, left


def mixed(block: Block, x: jax.Array, view: View, state: Any = None) -> tuple[jax.Array, Any]:
    """x [B,T,d] through a block around one mixer, `attention`, and the mixer's state."""
    left = [state]

    def itself(x: jax.Array) -> jax.Array:
        y, after = block.attention.mix(x, view, state)
        left.append(after)
        return y

    return block(x, itself), left[-1]


def within(segments: jax.Array) -> jax.Array:
    """How far each token stands behind the first of its segment, [B,T] int32."""
    at = jnp.arange(segments.shape[1], dtype=jnp.int32)
    begins = segments != jnp.concatenate([segments[:, :1], segments[:, :-1]], axis=1)
    return at - jax.lax.cummax(jnp.where(begins, at, 0), axis=1)


def rule_of(part: Part, layer: int = 0) -> Rule:
    """The rule of a field in a layer, checked, since a dotted path may name anything."""
    factory = of_layer(made(VISIBILITIES, part), layer)
    try:
        rule: Rule = factory()
    except TypeError as error:
        raise UserError(f"visibility {kind(factory).__name__}: {error}") from error
    if not isinstance(rule, Rule):
        raise UserError(
            f"a visibility must be a Rule; {kind(factory).__name__} makes a {type(rule).__name__}"
        )
    return rule
