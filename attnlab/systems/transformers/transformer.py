"""The Transformer encoder-decoder (Vaswani et al. 2017): attention without recurrence.

    x_0         = dropout(N_e(s embedding + positions))      s = sqrt(d) or 1; N_e a norm if asked for
    encoder     x = sub(x, self-attention);  x = sub(x, feed-forward)                                      N times
    decoder     y = sub(y, causal self-attention);  y = sub(y, attention to the encoder);  y = sub(y, feed-forward)
    logits      s' y E^T + c, E the target embedding (or an own matrix); s' = 1 or d^-1/2, c if asked for
    sub(x, f)   "post": LN(x + dropout(f(x))), the paper;  "pre": x + dropout(f(LN(x))), and one more LN on top of each stack;
                other placements: `layers/block.py`

Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017 (arXiv 1706.03762), sections 3
and 5.4. Pre-LN is that of the authors' later code and of Xiong et al. 2020. Beyond the paper:
dropout inside the feed-forward layer, as in the authors' code. Norm, feed-forward and placement are
fields, so that later models are settings of this one: T5 (Raffel et al. 2020) and BART (Lewis et al.
2020), whose settings are in `configs/text_to_text.py` and `weights/`.

Axis letters: B batch, S source length, T target length, V vocabulary, d model width.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Mixer
from attnlab.attention.needs import Need
from attnlab.attention.positions import POSITIONS
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.view import CAUSAL, View, token_positions
from attnlab.attention.visibility import VISIBILITIES
from attnlab.config.registry import Part, behind, made
from attnlab.errors import UserError
from attnlab.layers.block import Block
from attnlab.layers.dense import Dense, SharedOutput
from attnlab.layers.initial import Embed
from attnlab.layers.norms import apply_norm
from attnlab.mixers import MIXERS
from attnlab.systems.protocol import Seq2Seq, Side, Writer, looked
from attnlab.systems.transformers.loops import Sharing
from attnlab.systems.transformers.stack import Stacked, begun, rule_of

Factory = Callable[..., Mixer]


class DecoderLayer(Block):
    """Causal self-attention, attention to the source, feed-forward: y [B,T,d] to [B,T,d]. The
    fields are those of `Block`.
    """

    def write(
        self,
        y: jax.Array,
        source: Any,
        view: View,
        first: jax.Array | int = 0,
        cache: Any = None,
        looks: Any = None,
        valid: jax.Array | None = None,
    ) -> tuple[jax.Array, Any, Any]:
        """Computes one layer on y [B,T,d] from position `first` on: self-attention under `view`
        with earlier tokens in `cache`, attention to the memory `source` with the history `looks`,
        feed-forward; returns y, the grown cache and the new history.

        `source` is the source's memory; in decoding, `cache` is the self-attention's of what came
        before, and `looks` what the looks at the source so far leave to the next; `valid` [B,T] is
        that of `Block.__call__`.
        """

        def mix(y: jax.Array) -> jax.Array:
            nonlocal cache
            y, cache = self.self_attention.mix(y, view, cache)
            return y

        def across(y: jax.Array) -> jax.Array:
            """Computes the contexts of y from the source's memory, and updates `looks`."""
            nonlocal looks
            view = View(positions=first)
            reading = self.cross_attention.read(y, source, view, history=looks)
            looks = reading.history
            return looked(self, reading)

        return self(y, mix, across, valid=valid), cache, looks


@flax.struct.dataclass
class Decoding:
    """Tokens fed so far, [] int32; of every layer, its cache and what its looks at the source so
    far leave to the next (`Attention.initial_history`).
    """

    fed: jax.Array
    caches: list[Any]
    looks: list[Any]


class EncoderDecoder(Stacked, Writer, kw_only=True):
    """Base of the Transformers that write a text: a stack that reads, whatever it reads, and one that
    writes and attends to the first. Not a system by itself. The fields not named here are those of
    `Stacked`.

    Attributes:
      encoder_attention, decoder_attention, cross_attention: factories of the mechanisms; called
        with the model's width.
      encoder_visibility, decoder_visibility: the rules of the self-attentions; in the decoder the
        causal rule applies too.
      leaking: whether the decoder's self-attention leaves out the causal rule. An ablation: in a
        full pass every word then sees the words that it is to be trained to write, so losses and
        `score` of given texts say nothing. Decoding goes step by step as ever, over what has been
        written, and equals decoding under the causal rule with the same parameters.
      layers: N, how many layers the encoder has.
      decoder_layers: how many layers the decoder has; 0 for as many as the encoder.
      share_positions: whether the position scheme inside the self-attentions of a stack is one for
        all its layers, as in T5, or every layer has its own.
      own_positions: whether the positions of the decoder's embeddings are parameters of their own,
        as in BART.
      normalised_embedding: whether a norm N_e follows the embeddings, one for each stack.
      share: which matrices are one: "all" (source, target, output), "input" (source and target),
        "output" (target and output), "none".
      scaled_output: whether the states are multiplied with d^-1/2 (s') before the output, as in T5
          1.0.
      output_bias: whether the output has a bias c, a number for each token of the target.
    """

    encoder_attention: Factory
    decoder_attention: Factory
    cross_attention: Factory
    encoder_visibility: Part = "full"
    decoder_visibility: Part = "full"
    leaking: bool = False
    feed_forward: Part = "relu"
    decoder_layers: int = 0
    share_positions: bool = False
    own_positions: bool = False
    scaled_embedding: bool = True
    normalised_embedding: bool = False
    share: Literal["all", "input", "output", "none"] = "all"
    scaled_output: bool = False
    output_bias: bool = False

    parts = {
        **Stacked.parts,
        "encoder_attention": MIXERS,
        "decoder_attention": MIXERS,
        "cross_attention": MIXERS,
        "encoder_visibility": VISIBILITIES,
        "decoder_visibility": VISIBILITIES,
    }
    needs = {
        "encoder_attention": Need(role="self", maps=False, mixes=True),
        "decoder_attention": Need(
            role="self",
            direction="causal",
            cache="decoding",
            stepwise=True,
            history=True,
            mixes=True,
            maps=False,  # a recurrent layer has none
        ),
        "cross_attention": Need(role="cross", stepwise=True, history=True),
    }

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """Returns the `Need` by attention slot for the config fields `chosen`: a bidirectional
        decoder for `leaking`, and the restrictions of the visibility rules of both sides. See
        `System.asks`.
        """
        needs = dict(cls.needs)
        if chosen.get("leaking"):
            needs["decoder_attention"] = dataclasses.replace(
                needs["decoder_attention"], direction="bidirectional"
            )
        for side in ("encoder", "decoder"):
            rule = rule_of(chosen.get(f"{side}_visibility", "full"))
            needs[f"{side}_attention"] = needs[f"{side}_attention"].under(rule)
        return needs

    @nn.nowrap
    def notes(self) -> list[str]:
        """Returns a list with one line if `leaking`, which says that losses of given targets say
        nothing about decoding; else [].
        """
        note = (
            "system.leaking=true: the decoder sees its targets in training, so losses and accuracies"
            " of given targets say nothing of what it writes"
        )
        return [note] if self.leaking else []

    def setup(self) -> None:
        """Creates the embedding, output layer, stacks of blocks, positions and norms that the
        fields ask for.
        """
        self.embed_target = self.table(self.target_vocabulary)
        if self.own_matrix:
            self.out: Any = Dense(self.target_vocabulary, use_bias=self.output_bias)
        elif self.output_bias:
            self.out = SharedOutput()
        super().setup()
        encoder, decoder = self.encoder_attention, self.decoder_attention
        if self.share_positions:
            encoder, self.encoder_positions = _sharing(encoder, "encoder_attention")
            decoder, self.decoder_positions = _sharing(decoder, "decoder_attention")
        looks = (("self_attention", decoder), ("cross_attention", self.cross_attention))
        self.encoder = self.blocks((("self_attention", encoder),))
        self.decoder = self.blocks(looks, DecoderLayer, self.decoder_layers)
        self.decoder_scheme = self.scheme
        if self.own_positions:
            self.decoder_scheme = self.positions(name="positions_decoder")
        if self.normalised_embedding:
            self.embed_norm_encoder, self.embed_norm_decoder = self.normaliser(), self.normaliser()
        if self.topped:
            self.top_encoder, self.top_decoder = self.normaliser(), self.normaliser()

    @nn.nowrap
    def table(self, vocabulary: int) -> Embed:
        """Embeddings of so many words."""
        normal = nn.initializers.normal(self.width**-0.5)
        return Embed(vocabulary, self.word_width, embedding_init=normal)

    @property
    def own_matrix(self) -> bool:
        """Whether logits are products with a matrix of their own."""
        return self.share in ("input", "none")

    def read_through(self, x: jax.Array, valid: jax.Array) -> list[Any]:
        """Runs x_0 [B,S,d], real at `valid` [B,S], through the encoder; returns a list with each
        decoder layer's memory of the result, for its attention to the source.
        """
        x = self.drop(
            apply_norm(self.embed_norm_encoder, x, valid) if self.normalised_embedding else x
        )

        def step(layer: Block, number: int, x: jax.Array, extra: Any) -> Any:
            view = View(rule_of(self.encoder_visibility, number), valid=valid)
            return layer(x, lambda x: layer.self_attention.mix(x, view)[0], valid=valid), None

        x, _ = self.through(self.encoder, x, step)
        x = apply_norm(self.top_encoder, x, valid) if self.topped else x
        return [layer.cross_attention.remember(x, valid) for layer in self.decoder]

    def decode(self, memory: list[Any], target_in: jax.Array) -> jax.Array:
        """Computes logits [B,T,V] of given targets [B,T] with each layer's `memory` of the source,
        causally unless `leaking`; `Writer.decode`.
        """
        y = self._embed_target(target_in, jnp.arange(target_in.shape[1]))
        valid = self.real(target_in) if self.leaking else None  # else padding is never seen

        def step(layer: DecoderLayer, number: int, y: jax.Array, source: Any) -> Any:
            return layer.write(y, source, self._view(number, valid), valid=norm_mask)[0], None

        norm_mask = self.norm_mask(target_in)
        return self._logits(self.through(self.decoder, y, step, memory)[0], norm_mask)

    def start(self, memory: list[Any], length: int) -> Decoding:
        """Returns the `Decoding` before the first token (tokens fed: 0; of every layer a cache for
        `length` tokens and the first history of attention) from each layer's `memory` of the
        source; raises `UserError` if the positions end before. See `Writer.start`.
        """
        longest = self.decoder_scheme.longest
        if longest is not None and length > longest:
            raise UserError(
                f"transformer: {length} tokens may be written, but positions end at {longest}; lower"
                " batch.max_length, decoding.max_ratio and decoding.max_extra, or take positions"
                " without an end"
            )
        batch, dtype = memory[0].valid.shape[0], jnp.asarray(self.embed_target.embedding).dtype
        caches = [
            begun(layer.self_attention, self._view(number).rule, batch, length, dtype)
            for number, layer in enumerate(self.decoder)
        ]
        pairs = zip(self.decoder, memory, strict=True)
        looks = [layer.cross_attention.initial_history(source) for layer, source in pairs]
        return Decoding(jnp.zeros((), jnp.int32), caches, looks)

    def step(
        self, state: Decoding, memory: list[Any], tokens: jax.Array
    ) -> tuple[jax.Array, Decoding]:
        """Feeds tokens [B] with the caches of `state` and each layer's `memory` of the source;
        returns the logits [B,V] of the next tokens and the next state. See `Writer.step`.
        """
        y = self._embed_target(tokens[:, None], token_positions(state.fed, 1))

        def step(layer: DecoderLayer, number: int, y: jax.Array, extra: Any) -> Any:
            source, cache, looks = extra
            view, where = self._view(number), state.fed
            y, cache, looks = layer.write(y, source, view, where, cache, looks, norm_mask)
            return y, (cache, looks)

        norm_mask = self.norm_mask(tokens[:, None])

        extra = list(zip(memory, state.caches, state.looks, strict=True))
        y, outputs = self.through(self.decoder, y, step, extra, full_texts=False)
        caches, looks = ([layer[part] for layer in outputs] for part in (0, 1))
        return self._logits(y, norm_mask)[:, 0], Decoding(state.fed + 1, caches, looks)

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """Returns the sides of queries and keys of the map `name`: source-source in the encoder,
        target-source in cross-attention, else the decoder's input with itself. See
        `System.between`.
        """
        if name.startswith("encoder"):
            return "source", "source"
        return (
            ("target", "source") if name.endswith("cross_attention") else ("target_in", "target_in")
        )

    def _embed_target(self, tokens: jax.Array, positions: jax.Array) -> jax.Array:
        """Embeds target tokens [B,T] at positions [T] or [B,T]: y_0 [B,T,d]."""
        y = self.embedded(self.embed_target(tokens), positions, self.decoder_scheme)
        if self.normalised_embedding:
            y = apply_norm(self.embed_norm_decoder, y, self.norm_mask(tokens))
        return self.drop(y)

    def _view(self, layer: int, valid: jax.Array | None = None) -> View:
        """Of the self-attention of a layer of the decoder; `valid` [B,T]: which words are real."""
        rule = rule_of(self.decoder_visibility, layer)
        return View(rule, valid=valid) if self.leaking else CAUSAL & rule

    def _logits(self, y: jax.Array, norm_mask: jax.Array | None) -> jax.Array:
        """Computes the logits [B,T,V] of y [B,T,d]: the last norm and the scale if the fields say
        so, then the output matrix, a separate one or the target embedding. `norm_mask` [B,T]: which
        tokens are real, for norms that need it.
        """
        y = apply_norm(self.top_decoder, y, norm_mask) if self.topped else y
        y = y * self.width**-0.5 if self.scaled_output else y
        if self.own_matrix:
            return self.out(y)
        table = self.embed_target.embedding
        return self.out(self.words_of(y), table) if self.output_bias else self.tied(y, table)


class Transformer(EncoderDecoder, Seq2Seq, kw_only=True):
    """Transformer encoder-decoder (Vaswani et al. 2017): self-attention, causal self-attention,
    attention to the source. The fields are those of `EncoderDecoder`; a `share` of "all" or "input"
    needs one vocabulary.

    Card: Vaswani et al., Attention Is All You Need, NeurIPS 2017.
    """

    def setup(self) -> None:
        """Creates the source embedding and what `EncoderDecoder.setup` does; raises `UserError` if
        one table has to serve two vocabularies.
        """
        if self.one_table and self.source_vocabulary != self.target_vocabulary:
            sizes = f"{self.source_vocabulary} source and {self.target_vocabulary} target entries"
            raise UserError(
                f"transformer: share='{self.share}' needs one vocabulary, not {sizes}; set"
                f" vocabulary.shared=true or share='{'output' if self.share == 'all' else 'none'}'"
            )
        if not self.one_table:
            self.embed_source = self.table(self.source_vocabulary)
        super().setup()

    @property
    def one_table(self) -> bool:
        """Whether source and target have one embedding."""
        return self.share in ("all", "input")

    def encode(self, source: jax.Array) -> list[Any]:
        """See `Seq2Seq.encode`: one memory for each decoder layer."""
        words = (self.embed_target if self.one_table else self.embed_source)(source)
        x = self.embedded(words, jnp.arange(source.shape[1]))
        return self.read_through(x, self.real(source))


def _sharing(factory: Factory, slot: str) -> tuple[Factory, PositionScheme]:
    """Returns a factory of mechanisms like those of `factory` that share one position scheme, and
    the scheme; raises `UserError`, which names the `slot`, for mechanisms without positions.
    """
    if "positions" not in getattr(behind(factory), "parts", {}):
        raise UserError(
            f"transformer: share_positions=true, but {getattr(behind(factory), '__name__', factory)} of {slot} has no"
            " positions; choose 'multihead'"
        )
    part = getattr(factory, "keywords", {}).get(
        "positions", getattr(behind(factory), "positions", "none")
    )
    scheme = made(POSITIONS, part)()
    return Sharing.make(factory, scheme), scheme
