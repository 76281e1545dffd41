"""What all Transformers share: embeddings with positions, and stacks of n blocks.

    x_0      = s embedding + positions                       s = sqrt(d) if scaled
               [s embedding ; positions]                     m numbers of positions, d - m of words, s = sqrt(d - m)
    x        = block_i(x), i = 0 .. n - 1                    `layers/block.py`
    h        = N(x) in the placements that leave x without a norm, else x

A system derives from `Stacked`, says in `setup` what mixers a layer has, and in a function how a
layer calls them; the loop over the layers is here.

Axis letters: B batch, T length, d model width.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import flax.linen as nn
import flax.traverse_util
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Mixer
from attnlab.attention.needs import Need
from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.protocol import Attention
from attnlab.attention.view import View
from attnlab.attention.visibility import VISIBILITIES, Rule
from attnlab.config.registry import Part, Parts, behind, made
from attnlab.errors import UserError
from attnlab.layers import FEED_FORWARDS, INITIALIZERS, NORMS
from attnlab.layers.block import TOPPED, Block, Placement
from attnlab.layers.by_layer import chosen, of_layer
from attnlab.layers.dense import Dropout, matmul
from attnlab.layers.initial import Where, is_matrix
from attnlab.layers.norms import Norm, apply_norm
from attnlab.mixers import MIXERS
from attnlab.systems.protocol import System
from attnlab.systems.transformers.loops import Layers, Step, keys_of, looped, loops

Mixers = tuple[tuple[str, Callable[..., Any]], ...]
"""Name and factory of every mixer of a layer, as `Block` takes them."""


class Stacked(System, kw_only=True):
    """Base of the Transformers. Not a system by itself.

    Attributes:
      positions: of embeddings.
      width: d, the width of the states of every layer.
      layers: n, how many layers there are.
      hidden: the width inside the feed-forward layers.
      norm: where norms stand: "pre" before each sub-layer, "post" after its sum (the paper), or
          another placement of `layers/block.py`.
      normalisation: the norm itself.
      feed_forward: the feed-forward layers; each gets `hidden` and `dropout`.
      scaled_embedding: whether embeddings of words are multiplied with sqrt(d) before positions are
          added.
      position_width: m: 0 for positions that are added to embeddings; above 0 they are the last m
        numbers of x_0 and embeddings of words are d - m wide (a product with them, for logits,
        reads the first d - m numbers of its state).
      dropout: share of embeddings, sub-layer outputs and what is inside the feed-forward layers
          that training sets to 0.
      embedding_dropout: the same share of embeddings alone; None for `dropout`. That of weights of
          attention is a field of the mechanism.
      hidden_dropout: the same share of what is inside the feed-forward layers alone; None for
          `dropout`.
      initial: how matrices start; see `layers/initial.py`.
      scan: whether a pass over whole texts is a loop over the layers, for deep stacks: it is
        compiled faster, but without `remat` it runs slower. Decoding writes layers out.
      remat: whether the backward pass computes each layer again, which takes far less memory and
          more time.
    """

    positions: Callable[..., PositionScheme]
    width: int = 128
    layers: int = 2
    hidden: int = 512
    norm: Placement = "pre"
    normalisation: Part = "layer_norm"
    feed_forward: Part = "gelu_tanh"
    scaled_embedding: bool = False
    position_width: int = 0
    dropout: float = 0.1
    embedding_dropout: float | None = None
    hidden_dropout: float | None = None
    initial: Part = "own"
    scan: bool = False
    remat: bool = False

    parts: ClassVar[Parts] = {
        "initial": INITIALIZERS,
        "positions": POSITIONS,
        "normalisation": NORMS,
        "feed_forward": FEED_FORWARDS,
    }

    def setup(self) -> None:
        """Creates the position scheme and dropout; raises `UserError` for positions that act inside
        attention, an invalid `position_width`, or batch norm in looped or recomputed layers.
        """
        self.scheme = self.positions(name="positions")
        if self.scheme.hooks - {"embedding"}:
            raise UserError(
                f"system.positions={type(self.scheme).__name__} acts inside attention; set it as"
                " the positions of the self-attentions"
            )
        if not 0 <= self.position_width < self.width:
            raise UserError(
                f"system.position_width={self.position_width}: positions and words share a width of"
                f" {self.width}; take at least 0 and at most {self.width - 1}"
            )
        if self.position_width and not self.scheme.hooks:
            raise UserError(
                f"system.position_width={self.position_width}, but system.positions=none; take"
                " sinusoidal or learned positions, or a width of 0"
            )
        if self.normed_over_batch and (self.scan or self.remat):
            raise UserError(
                "system.normalisation=batch_norm: layers that are looped over or computed again"
                " leave no statistics; set system.scan=false and system.remat=false"
            )
        self.drop = Dropout(_rate_or(self.embedding_dropout, self.dropout))

    def blocks(self, mixers: Mixers, kind: Callable[..., Any] = Block, count: int = 0) -> list[Any]:
        """Creates, in `setup`, a list of the `count` blocks (0: `layers`) of a stack, of the class
        `kind`, around `mixers`, pairs of a name and a factory, with the feed-forward, norm and
        placement of the fields. See `by_layer` for mixers that differ by layer.
        """
        make = made(FEED_FORWARDS, self.feed_forward)
        inside = _rate_or(self.hidden_dropout, self.dropout)
        return [
            kind(
                self.width,
                tuple((name, of_layer(mixer, number)) for name, mixer in mixers),
                feed_forward_factory=functools.partial(make, self.hidden, inside),
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
    def normed_over_batch(self) -> bool:
        """Whether norms of the blocks leave statistics of their batch."""
        return bool(getattr(behind(self.normaliser), "over_batch", False))

    @property
    def over_batch(self) -> bool:
        """See `System.over_batch`."""
        return self.normed_over_batch or super().over_batch

    def norm_mask(self, ids: jax.Array) -> jax.Array | None:
        """Which of ids [B,T] are real, for norms that ask; else None."""
        return self.real(ids) if self.normed_over_batch else None

    @nn.nowrap
    def norm_mask_of_images(self, x: jax.Array, valid: jax.Array | None) -> jax.Array | None:
        """Returns which tokens of x [B,T,d] are of images, for norms that ask; else None. `valid`
        [B]: which rows are images, None for all.
        """
        if not self.normed_over_batch:
            return None
        rows = jnp.ones(len(x), bool) if valid is None else valid
        return jnp.broadcast_to(rows[:, None], x.shape[:2])

    @property
    def topped(self) -> bool:
        """Whether a norm follows the last layer."""
        return self.norm in TOPPED

    @property
    def word_width(self) -> int:
        """d - m, of the embeddings of words."""
        return self.width - self.position_width

    def tied(self, x: jax.Array, table: jax.Array) -> jax.Array:
        """States [B,T,d] and a table of embeddings [V,d-m] to logits [B,T,V]."""
        return matmul(self.words_of(x), table.T)

    def words_of(self, x: jax.Array) -> jax.Array:
        """States [B,T,d] without what positions take of them, [B,T,d-m]."""
        return x[..., : self.word_width]

    def embedded(
        self, words: jax.Array, positions: jax.Array, scheme: PositionScheme | None = None
    ) -> jax.Array:
        """Computes x_0 [B,T,d] of `words`, embeddings [B,T,d-m] (scaled if the fields say so), with
        positions [T] or [B,T] added, or appended if m > 0, by the `scheme` (None: that of the
        field); raises `UserError` if T exceeds the positions.

        Raises:
          UserError: texts that share rows, or whole rows, longer than the positions reach.
        """
        scheme = self.scheme if scheme is None else scheme
        longest = scheme.longest
        if longest is not None and words.shape[1] > longest:
            raise UserError(
                f"rows of {words.shape[1]} tokens, but positions end at {longest}; lower"
                " config.batch.max_length (if decoding.full_passes writes them, decoding.max_extra"
                " and decoding.max_ratio), or take longer positions, or some without an end"
            )
        scaled = words * math.sqrt(self.word_width) if self.scaled_embedding else words
        if not self.position_width:
            return scheme.embed(scaled, positions)
        nothing = jnp.zeros((*words.shape[:2], self.position_width), words.dtype)
        return jnp.concatenate([scaled, scheme.embed(nothing, positions)], axis=-1)

    def through(
        self,
        stack: Sequence[Block],
        x: jax.Array,
        step: Step,
        extras: Sequence[Any] | None = None,
        full_texts: bool = True,
    ) -> tuple[jax.Array, list[Any]]:
        """Runs x [B,T,d] through the blocks of `stack`, each by `step` with its item of `extras`;
        returns x and a list of what each step returns beside x, such as its state ([] where layers
        are looped over or recomputed).

        Args:
          stack: the blocks.
          x: [B,T,d].
          step: one layer; see `Step`.
          extras: what each layer is given, such as its state; None for nothing.
          full_texts: whether these are whole texts, so that nobody wants what layers leave; `scan` and
            `remat` act on these alone.
        """
        if full_texts and (self.scan or self.remat) and loops(self):
            layers = Layers(stack, step, extras or (), self.remat)
            period = self._period(len(stack)) if self.scan else 0
            return looped(layers, x, keys_of(self, len(stack)), period), []
        states = []
        for number, block in enumerate(stack):
            x, state = step(block, number, x, None if extras is None else extras[number])
            states.append(state)
        return x, states

    @nn.nowrap
    def _period(self, layers: int) -> int:
        """Returns after how many of `layers` layers their parts repeat."""
        parts = [getattr(self, field) for field in type(self).parts]
        kinds = [tuple(chosen(part, layer)[1] for part in parts) for layer in range(layers)]
        periods = range(1, layers + 1)
        return next(p for p in periods if all(kinds[i] == kinds[i % p] for i in range(layers)))

    @nn.nowrap
    def init(self, rngs: Any, *arguments: Any, **named: Any) -> Any:
        """Returns the variables of the module, created by Flax's `init` with its arguments, with
        the matrices drawn anew by the initializer that the field `initial` names ("own": as the
        layers drew them).
        """
        variables = super().init(rngs, *arguments, **named)
        key = rngs["params"] if isinstance(rngs, Mapping) else rngs
        params = variables["params"]
        places = {
            path: self._describe_matrix(path, leaf.shape)
            for path, leaf in flax.traverse_util.flatten_dict(params).items()
            if is_matrix(path, leaf)
        }
        initializer = made(INITIALIZERS, self.initial)()
        return {**variables, "params": initializer.begun(params, key, places)}

    @nn.nowrap
    def _describe_matrix(self, path: tuple[str, ...], shape: tuple[int, ...]) -> Where:
        """Returns a `Where`, the description for initializers of the matrix at a parameter path:
        path, shape, width d, number of residual connections in its stack (0 outside of stacks),
        heads of its attention (1 if it is in none).
        """
        stack, _, number = path[0].rpartition("_")
        if not number.isdecimal():
            return Where(path, shape, self.width)
        name = path[1].removeprefix("self_")
        slot = f"{stack}_{name}" if name != path[1] else name
        attention = getattr(self, slot, None)
        heads = 1
        if attention is not None:
            part = of_layer(attention, int(number))
            heads = getattr(part, "keywords", {}).get("heads", getattr(behind(part), "heads", 1))
        layers: int = getattr(self, f"{stack}_layers", 0) or self.layers
        connections = (3 if stack == "decoder" else 2) * layers
        return Where(path, shape, self.width, connections, heads)


def _rate_or(rate: float | None, usual: float) -> float:
    return usual if rate is None else rate


def mixed(
    block: Block, x: jax.Array, view: View, state: Any = None, valid: jax.Array | None = None
) -> tuple[jax.Array, Any]:
    """Runs x [B,T,d] through a block whose only mixer is `attention`, under `view` and from the
    mixer's `state`; returns x and the mixer's next state; `valid` is that of `Block.__call__`.
    """
    states = [state]

    def mix(x: jax.Array) -> jax.Array:
        y, following = block.attention.mix(x, view, state)
        states.append(following)
        return y

    return block(x, mix, valid=valid), states[-1]


def begun(mixer: Mixer, rule: Rule, rows: int, room: int, dtype: Any) -> Any:
    """The state of a causal mixer before the first of `room` tokens; under a rule that is a window
    it need not keep what nobody sees any more.
    """
    if rule.window is None or not isinstance(mixer, Attention) or not mixer.forgets():
        return mixer.begin(rows, room, dtype)
    return mixer.begin(rows, room, dtype, window=rule.window)


def segment_positions(segments: jax.Array) -> jax.Array:
    """Returns how far each token stands behind the first of its segment, [B,T] int32, from the
    numbers of segments [B,T].
    """
    index = jnp.arange(segments.shape[1], dtype=jnp.int32)
    begins = segments != jnp.concatenate([segments[:, :1], segments[:, :-1]], axis=1)
    return index - jax.lax.cummax(jnp.where(begins, index, 0), axis=1)


class Ruled(Stacked, kw_only=True):
    """Base of the Transformers of one stack, whose layers have one mixer each, under one rule. Not a
    system by itself. The fields not named here are those of `Stacked`.

    Attributes:
      attention: the self-attention, or other mixer, of every layer; called with the model's width.
      visibility: who sees whom.
    """

    attention: Callable[..., Mixer]
    visibility: Part = "full"

    parts: ClassVar[Parts] = {
        **Stacked.parts,
        "attention": MIXERS,
        "visibility": VISIBILITIES,
    }

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """See `System.asks`."""
        rule = rule_of(chosen.get("visibility", cls.visibility))
        return {slot: need.under(rule) for slot, need in cls.needs.items()}

    def setup(self) -> None:
        super().setup()
        self.layer = self.blocks((("attention", self.attention),))
        if self.topped:
            self.top = self.normaliser()

    def through_layers(
        self,
        x: jax.Array,
        view: Callable[[int], View],
        norm_mask: jax.Array | None,
        states: Sequence[Any] | None = None,
    ) -> tuple[jax.Array, list[Any]]:
        """Runs x_0 [B,T,d] through all layers, each under the `View` that `view` gives for its
        number, and the last norm if there is one; returns h and a list of the mixers' next states
        ([] where layers are looped over or recomputed). `norm_mask` [B,T] is the `valid` of
        `Block.__call__`. Without `states` these are whole texts, see `through`.
        """

        def step(block: Block, number: int, x: jax.Array, state: Any) -> tuple[jax.Array, Any]:
            return mixed(block, x, view(number), state, norm_mask)

        x, following = self.through(self.layer, x, step, states, full_texts=states is None)
        return apply_norm(self.top, x, norm_mask) if self.topped else x, following


def rule_of(part: Part, layer: int = 0) -> Rule:
    """Builds the visibility `Rule` that a config field with the value `part` gives to the layer
    number `layer`; raises `UserError` if it cannot be built or is no `Rule`, since a dotted path
    may name anything.
    """
    factory = of_layer(made(VISIBILITIES, part), layer)
    name = getattr(behind(factory), "__name__", factory)
    try:
        rule: Rule = factory()
    except TypeError as error:
        raise UserError(f"visibility {name}: {error}") from error
    if not isinstance(rule, Rule):
        raise UserError(f"a visibility must be a Rule; {name} makes a {type(rule).__name__}")
    return rule
