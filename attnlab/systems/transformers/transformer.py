"""The Transformer encoder-decoder (Vaswani et al. 2017): attention and nothing recurrent.

    x_0         = dropout(sqrt(d) embedding + positions)
    encoder     x = sub(x, self-attention);  x = sub(x, feed-forward)                                      N times
    decoder     y = sub(y, causal self-attention);  y = sub(y, attention to the encoder);  y = sub(y, feed-forward)
    logits      y E^T, E the target embedding (or an own matrix)
    sub(x, f)   "post": LN(x + dropout(f(x))), the paper;  "pre": x + dropout(f(LN(x))), and one more LN on top of each stack

Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017 (arXiv 1706.03762), sections 3
and 5.4. Pre-LN is that of the authors' later code and of Xiong et al. 2020. Beyond the paper:
dropout inside the feed-forward layer, as in the authors' code.

Axis letters: B batch, S source length, T target length, V vocabulary, d model width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.protocol import Attention
from attnlab.attention.visibility import CAUSAL, VISIBILITIES, Rule, Visibility
from attnlab.config.registry import Part, kind, made
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, Dropout, matmul
from attnlab.layers.feedforward import FeedForward, layer_norm
from attnlab.layers.initial import Embed
from attnlab.systems.protocol import PAD, Card, Seq2Seq, Sequence, looked

Factory = Callable[..., Attention]


class Sublayer(nn.Module):
    """Residual connection, dropout and norm around any function of x [B,T,d].

    Attributes:
      norm: "pre" or "post", see the top of this file.
      dropout: rate on the function's output.
    """

    norm: Literal["pre", "post"]
    dropout: float

    def setup(self) -> None:
        self.scale = layer_norm()
        self.drop = Dropout(self.dropout)

    def __call__(self, x: jax.Array, function: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """x [B,T,d] to [B,T,d]."""
        if self.norm == "pre":
            return x + self.drop(function(self.scale(x)))
        return self.scale(x + self.drop(function(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward: x [B,S,d] to [B,S,d].

    Attributes:
      attention: factory of the self-attention.
      hidden: width of the feed-forward layer.
      norm, dropout: see `Sublayer`.
    """

    attention: Factory
    hidden: int
    norm: Literal["pre", "post"]
    dropout: float

    @nn.compact
    def __call__(self, x: jax.Array, visibility: Visibility, valid: jax.Array) -> jax.Array:
        """x [B,S,d] and valid [B,S] to [B,S,d]; `visibility` is the self-attention's."""
        attention = self.attention(width=x.shape[-1], name="self_attention")
        feed_forward = FeedForward(self.hidden, self.dropout, name="feed_forward")
        x = Sublayer(self.norm, self.dropout, name="around_self")(
            x, lambda x: looked(self, attention(x, x, visibility, valid))
        )
        return Sublayer(self.norm, self.dropout, name="around_feed_forward")(x, feed_forward)


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, feed-forward: y [B,T,d] to [B,T,d].

    Attributes:
      self_factory, cross_factory: factories of the two attentions.
      width: d.
      hidden: width of the feed-forward layer.
      norm, dropout: see `Sublayer`.
    """

    self_factory: Factory
    cross_factory: Factory
    width: int
    hidden: int
    norm: Literal["pre", "post"]
    dropout: float

    def setup(self) -> None:
        self.self_attention = self.self_factory(width=self.width)
        self.cross_attention = self.cross_factory(width=self.width)
        self.feed_forward = FeedForward(self.hidden, self.dropout)
        self.around_self = Sublayer(self.norm, self.dropout)
        self.around_cross = Sublayer(self.norm, self.dropout)
        self.around_feed_forward = Sublayer(self.norm, self.dropout)

    def look_up(self, states: jax.Array, valid: jax.Array) -> Any:
        """The cross-attention's memory of the encoder states [B,S,d]."""
        return self.cross_attention.remember(states, valid)

    def reserve(self, batch: int, length: int, dtype: Any) -> Any:
        """An empty self-attention memory with room for `length` tokens."""
        return self.self_attention.remember(
            jnp.zeros((batch, 0, self.width), dtype), capacity=length
        )

    def __call__(
        self,
        y: jax.Array,
        source: Any,
        visibility: Visibility,
        first: jax.Array | int = 0,
        cache: Any = None,
    ) -> tuple[jax.Array, Any]:
        """y [B,T,d] from position `first` on, with self-attention under `visibility`, to y and the
        grown cache.

        `source` is the source's memory, `cache`, in decoding, the self-attention's of what came
        before.
        """
        grown: list[Any] = []

        def itself(y: jax.Array) -> jax.Array:
            attention = self.self_attention
            grown.append(attention.remember(y) if cache is None else attention.extend(cache, y))
            return looked(self, attention.read(y, grown[0], visibility))

        y = self.around_self(y, itself)
        y = self.around_cross(
            y,
            lambda y: looked(self, self.cross_attention.read(y, source, Visibility(offset=first))),
        )
        return self.around_feed_forward(y, self.feed_forward), grown[0]


@flax.struct.dataclass
class Decoding:
    """Tokens fed so far, [] int32, and each layer's cache."""

    fed: jax.Array
    caches: list[Any]


class Transformer(Seq2Seq):
    """Transformer encoder-decoder (Vaswani et al. 2017): self-attention, causal self-attention,
    attention to the source.

    Attributes:
      encoder_attention, decoder_attention, cross_attention: factories of the mechanisms; called
      with the model's width. positions: factory of the position scheme.
      encoder_visibility, decoder_visibility: who sees whom in the self-attentions; the decoder's
        holds beside causality.
      width: d.
      layers: N, of encoder and decoder alike.
      hidden: width of the feed-forward layers.
      norm: "post" (the paper) or "pre".
      dropout: rate on embeddings, sub-layer outputs and inside the feed-forward layers.
      share: which matrices are one: "all" (source, target, output; needs one vocabulary), "output"
        (target and output), "none".
    """

    encoder_attention: Factory
    decoder_attention: Factory
    cross_attention: Factory
    positions: Callable[..., PositionScheme]
    encoder_visibility: Part = "full"
    decoder_visibility: Part = "full"
    width: int = 128
    layers: int = 2
    hidden: int = 512
    norm: Literal["pre", "post"] = "pre"
    dropout: float = 0.1
    share: Literal["all", "output", "none"] = "all"

    parts = {
        "encoder_attention": MECHANISMS,
        "decoder_attention": MECHANISMS,
        "cross_attention": MECHANISMS,
        "positions": POSITIONS,
        "encoder_visibility": VISIBILITIES,
        "decoder_visibility": VISIBILITIES,
    }
    needs = {
        "encoder_attention": Need(role="self"),
        "decoder_attention": Need(role="self", direction="causal", cache=True, stepwise=True),
        "cross_attention": Need(role="cross", stepwise=True),
    }

    card = Card(2017, "Vaswani et al., Attention Is All You Need, NeurIPS 2017")

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """See `Seq2Seq.asks`."""
        slots = ("encoder", "decoder")
        rules = {
            f"{slot}_attention": _rule(chosen.get(f"{slot}_visibility", "full")) for slot in slots
        }
        return {
            slot: need.under(rules[slot]) if slot in rules else need
            for slot, need in cls.needs.items()
        }

    def setup(self) -> None:
        if self.share == "all" and self.source_vocabulary != self.target_vocabulary:
            sizes = f"{self.source_vocabulary} source and {self.target_vocabulary} target entries"
            raise UserError(
                f"transformer: share='all' needs one vocabulary, not {sizes}; set"
                " vocabulary.shared=true or share='output'"
            )
        normal = nn.initializers.normal(self.width**-0.5)
        self.embed_target = Embed(self.target_vocabulary, self.width, embedding_init=normal)
        if self.share != "all":
            self.embed_source = Embed(self.source_vocabulary, self.width, embedding_init=normal)
        if self.share == "none":
            self.out = Dense(self.target_vocabulary, use_bias=False)
        self.scheme = self.positions()
        if self.scheme.hooks - {"embedding"}:
            name = type(self.scheme).__name__
            raise UserError(
                f"transformer: positions={name} acts inside attention; set it in the"
                " self-attentions"
            )
        self.drop = Dropout(self.dropout)
        self.encoder = [
            EncoderLayer(self.encoder_attention, self.hidden, self.norm, self.dropout)
            for _ in range(self.layers)
        ]
        self.decoder = [
            DecoderLayer(
                self.decoder_attention,
                self.cross_attention,
                self.width,
                self.hidden,
                self.norm,
                self.dropout,
            )
            for _ in range(self.layers)
        ]
        if self.norm == "pre":
            self.top_encoder, self.top_decoder = layer_norm(), layer_norm()

    def encode(self, source: jax.Array) -> list[Any]:
        """See `Seq2Seq.encode`: one memory for each decoder layer."""
        valid = source != PAD
        x = self._embed(
            self.embed_target if self.share == "all" else self.embed_source,
            source,
            jnp.arange(source.shape[1]),
        )
        for layer in self.encoder:
            x = layer(x, Visibility(_rule(self.encoder_visibility)), valid)
        x = self.top_encoder(x) if self.norm == "pre" else x
        return [layer.look_up(x, valid) for layer in self.decoder]

    def decode(self, memory: list[Any], target_in: jax.Array) -> jax.Array:
        """See `Seq2Seq.decode`."""
        y = self._embed(self.embed_target, target_in, jnp.arange(target_in.shape[1]))
        for layer, source in zip(self.decoder, memory, strict=True):
            y, _ = layer(y, source, CAUSAL & _rule(self.decoder_visibility))
        return self._logits(y)

    def start(self, memory: list[Any], length: int) -> Decoding:
        """See `Seq2Seq.start`."""
        batch, dtype = memory[0].valid.shape[0], jnp.asarray(self.embed_target.embedding).dtype
        return Decoding(
            jnp.zeros((), jnp.int32),
            [layer.reserve(batch, length, dtype) for layer in self.decoder],
        )

    def step(
        self, state: Decoding, memory: list[Any], tokens: jax.Array
    ) -> tuple[jax.Array, Decoding]:
        """See `Seq2Seq.step`."""
        y = self._embed(self.embed_target, tokens[:, None], state.fed[None])
        caches = []
        for layer, source, cache in zip(self.decoder, memory, state.caches, strict=True):
            y, grown = layer(y, source, CAUSAL & _rule(self.decoder_visibility), state.fed, cache)
            caches.append(grown)
        return self._logits(y)[:, 0], Decoding(state.fed + 1, caches)

    @classmethod
    def between(cls, name: str) -> tuple[Sequence, Sequence]:
        """See `Seq2Seq.between`."""
        if name.startswith("encoder"):
            return "source", "source"
        return (
            ("target", "source") if name.endswith("cross_attention") else ("target_in", "target_in")
        )

    def _embed(self, table: Embed, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        """tokens [B,T] at positions [T] to [B,T,d]."""
        return self.drop(self.scheme.embed(table(tokens) * math.sqrt(self.width), positions))

    def _logits(self, y: jax.Array) -> jax.Array:
        """y [B,T,d] to [B,T,V]."""
        y = self.top_decoder(y) if self.norm == "pre" else y
        return self.out(y) if self.share == "none" else matmul(y, self.embed_target.embedding.T)


def _rule(part: Part) -> Rule:
    """The rule of a field; a dotted path may lead to anything."""
    factory = made(VISIBILITIES, part)
    try:
        rule: Rule = factory()
    except TypeError as error:
        raise UserError(f"transformer: visibility {kind(factory).__name__}: {error}") from error
    if not isinstance(rule, Rule):
        raise UserError(
            f"transformer: a visibility must be a Rule; {kind(factory).__name__} makes a"
            f" {type(rule).__name__}"
        )
    return rule
