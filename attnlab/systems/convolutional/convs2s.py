"""ConvS2S (Gehring et al. 2017): gated convolutions on both sides, and attention to the source in
every layer of the decoder.

With q = sqrt(1/2), and all linear maps and convolutions weight-normalised:

    encoder   e = word + position;   z = e W_i;   z = q (GLU(conv(z)) + z)   N times;   k = z W_k      v = q (k + e)
    decoder   g = word + position;   h = g W_j;   M times:
                u = GLU(causal conv(h))                          [d]
                a = q (u W_d + g)                                the query: the layer's state, and the word before the one looked for
                c = sqrt(m) attention(a, keys k, values v)       any mechanism; dot products, not scaled, in the paper; m words of source
                h = q (q (u + c W_c) + h)
    logits    (h W_o) W_v

The sum of m values with weights near 1 / m has 1 / m of their variance, hence sqrt(m); a sum of two
terms is halved in variance by q. The context of a decoder layer is part of the queries of the
layers above it, so attention has several steps. Gradients from the attentions into the encoder's
convolutions are divided by 2 M (of the layers that look), for each look sends two of them, by keys
and by values; those into e are not.

Source: J. Gehring, M. Auli, D. Grangier, D. Yarats, Y. N. Dauphin, "Convolutional Sequence to
Sequence Learning", ICML 2017 (arXiv 1705.03122). As in the authors' code, v, a and the sum of u and
c are scaled by q too, and c has a projection, none of which the paper prints; and gradients are
divided by 2 M, where the paper divides by M. Here all layers have one width and one window, as in
its English-Romanian system; m counts real words, not padding; the layers W_k and W_o are as wide as
the embeddings.

Axis letters: B batch, S source length, T target length, V vocabulary, f embedding, d width, k
window.
"""

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
from attnlab.attention.view import View, token_positions
from attnlab.errors import UserError
from attnlab.layers.convolution import GatedConvolution, NormedDense, nothing_before
from attnlab.layers.dense import Dropout
from attnlab.layers.initial import Embed
from attnlab.systems.protocol import AttentionMap, Seq2Seq, looked

HALF = 0.5**0.5
START = nn.initializers.normal(0.1)


def slowed(x: jax.Array, factor: float) -> jax.Array:
    """Returns x itself, with gradients multiplied by `factor`."""
    fixed = jax.lax.stop_gradient(x)
    return fixed + factor * (x - fixed)


class EncoderLayer(nn.Module):
    """z [B,S,d] to q (GLU(conv(z)) + z). For the attributes see `ConvS2S`."""

    width: int
    kernel: int
    dropout: float

    def setup(self) -> None:
        self.convolution = GatedConvolution(self.width, self.kernel, self.dropout)

    def __call__(self, z: jax.Array, valid: jax.Array) -> jax.Array:
        """z [B,S,d] and valid [B,S] to [B,S,d]."""
        return HALF * (self.convolution.same(z, valid) + z)


@flax.struct.dataclass
class Encoded:
    """The memory of every decoder layer's attention, and sqrt(m) [B]."""

    attended: list[Any]
    scale: jax.Array


@flax.struct.dataclass
class Decoding:
    """Tokens fed so far, [] int32; of every layer, the last inputs of its convolution, [B,k-1,d],
    and what its looks so far leave to the next (`Attention.initial_history`).
    """

    fed: jax.Array
    windows: list[jax.Array]
    looks: list[Any]


class DecoderLayer(nn.Module):
    """h [B,T,d] and words g [B,T,f] to the next h. For the attributes see `ConvS2S`; without a
    factory it does not look.
    """

    attention_factory: Callable[..., Attention] | None
    embedding: int
    width: int
    kernel: int
    dropout: float

    def setup(self) -> None:
        """Creates the convolution and, if the layer attends, the mechanism and the projections of
        its query and its context.
        """
        self.convolution = GatedConvolution(self.width, self.kernel, self.dropout)
        if self.attention_factory is not None:
            self.asks = NormedDense(self.embedding)
            self.attention = self.attention_factory(width=self.embedding)
            self.takes = NormedDense(self.width)

    def remember(self, keys: jax.Array, values: jax.Array, valid: jax.Array) -> Any:
        """The memory of the source, None for a layer without attention."""
        if self.attention_factory is None:
            return None
        return self.attention.remember_pairs(keys, values, valid)

    def initial_history(self, attended: Any) -> Any:
        """The attention history before the first decoding step."""
        return None if attended is None else self.attention.initial_history(attended)

    def __call__(
        self,
        h: jax.Array,
        g: jax.Array,
        attended: Any,
        scale: jax.Array,
        past: jax.Array,
        looks: Any,
        first: jax.Array | int,
    ) -> tuple[jax.Array, jax.Array, Any]:
        """Computes one decoder layer on h [B,T,d] and embedded words g [B,T,f]: convolution of h
        after its inputs `past`, attention to the memory `attended` (if any) with history `looks`,
        its contexts times `scale` [B], residual sums times sqrt(1/2); returns the next h, the
        convolution's last inputs and the new history.

        Args:
          h: [B,T,d], of the layer below.
          g: [B,T,f], the embedded words.
          attended: the memory of the source; None without attention.
          scale: sqrt(m) [B], m the words of the source.
          past: [B,k-1,d], the convolution's inputs before h.
          looks: the history of earlier looks.
          first: position of the first word of h.
        """
        u, window = self.convolution.causal(h, past)
        if attended is None:
            return HALF * (u + h), window, None
        query = HALF * (self.asks(u) + g)
        view = View(positions=first)
        reading = self.attention.read(query, attended, view, history=looks)
        context = looked(self, reading)
        u = HALF * (self.takes(context * scale[:, None, None]) + u)
        return HALF * (u + h), window, reading.history


class ConvS2S(Seq2Seq):
    """ConvS2S (Gehring et al. 2017): convolutions over words, attention in every decoder layer.

    Attributes:
      attention: factory of the mechanism, one for each decoder layer; called with the width of the
        embeddings, of keys and of values.
      positions: factory of the position scheme, on the embeddings of both sides; `learned` in the
        paper, from N(0, 0.1^2).
      embedding: f, the width of the embeddings of words, on both sides.
      width: d, the width (channels) of every convolutional layer.
      kernel: k, how many neighbours a convolution sees, itself among them; odd.
      encoder_layers: N, how many convolutional layers read the source.
      decoder_layers: M, how many convolutional layers write the target.
      attend: which layers of the decoder attend to the source: "all" (the paper's), the "last", the
        "first" or "none"; of the others, h = q (u + h).
      dropout: share of the embeddings, the inputs of convolutions and those of W_v that training
          sets to 0.

    Card: Gehring et al., Convolutional Sequence to Sequence Learning, ICML 2017.
    """

    attention: Callable[..., Attention]
    positions: Callable[..., PositionScheme]
    embedding: int = 64
    width: int = 64
    kernel: int = 3
    encoder_layers: int = 3
    decoder_layers: int = 3
    attend: Literal["all", "last", "first", "none"] = "all"
    dropout: float = 0.1

    parts = {"attention": MECHANISMS, "positions": POSITIONS}
    needs = {"attention": Need(role="cross", stepwise=True, history=True, values=True)}

    def setup(self) -> None:
        """Creates embeddings, positions, the layers of both sides and the output layer; raises
        `UserError` for an even kernel or positions that act inside attention.
        """
        if self.kernel % 2 == 0:
            raise UserError(
                f"system.kernel={self.kernel} has no middle; take {self.kernel - 1} or"
                f" {self.kernel + 1}"
            )
        self.embed_source = Embed(self.source_vocabulary, self.embedding, embedding_init=START)
        self.embed_target = Embed(self.target_vocabulary, self.embedding, embedding_init=START)
        self.places_source = self.positions(name="positions_source")
        self.places_target = self.positions(name="positions_target")
        if self.places_source.hooks - {"embedding"}:
            name = type(self.places_source).__name__
            raise UserError(
                f"system.positions={name} acts inside attention between states; choose 'learned',"
                " 'sinusoidal' or 'none'"
            )
        sizes = (self.width, self.kernel, self.dropout)
        keep = 1.0 - self.dropout
        self.into_encoder = NormedDense(self.width, keep)
        self.into_decoder = NormedDense(self.width, keep)
        self.encoder = [EncoderLayer(*sizes) for _ in range(self.encoder_layers)]
        self.decoder = [
            DecoderLayer(
                self.attention if number in self.attending() else None, self.embedding, *sizes
            )
            for number in range(self.decoder_layers)
        ]
        self.out_encoder = NormedDense(self.embedding)
        self.out_decoder = NormedDense(self.embedding)
        self.out = NormedDense(self.target_vocabulary, keep)
        self.drop = Dropout(self.dropout)

    @nn.nowrap
    def attending(self) -> list[int]:
        """The layers of the decoder that attend to the source, from 0."""
        layers = list(range(self.decoder_layers))
        return {"all": layers, "last": layers[-1:], "first": layers[:1], "none": []}[self.attend]

    def encode(self, source: jax.Array) -> Encoded:
        """Encodes source ids [B,S] by convolutions to an `Encoded`: the memory of every decoder
        layer's attention (keys: states, values: sqrt(1/2) (states + embeddings); None for a layer
        without attention) and sqrt(m) [B], m the number of real tokens in the source. See
        `Seq2Seq.encode`.
        """
        valid = self.real(source)
        positions = jnp.arange(source.shape[1])
        e = self.drop(self.places_source.embed(self.embed_source(source), positions))  # [B,S,f]
        z = self.into_encoder(e)
        for layer in self.encoder:
            z = layer(z, valid)
        keys = slowed(self.out_encoder(z), 1 / (2 * max(len(self.attending()), 1)))
        values = HALF * (keys + e)
        attended = [layer.remember(keys, values, valid) for layer in self.decoder]
        return Encoded(attended, jnp.sqrt(valid.sum(axis=1).astype(e.dtype)))

    def decode(self, memory: Encoded, target_in: jax.Array) -> jax.Array:
        """See `Seq2Seq.decode`; all positions at once."""
        return self._continue(self.start(memory, target_in.shape[1]), memory, target_in)[0]

    def start(self, memory: Encoded, length: int) -> Decoding:
        """Returns the `Decoding` before the first token of at most `length` (tokens fed: 0, windows
        of zeros of all convolutions, first histories of attention); raises `UserError` if the
        positions end before `length`. See `Seq2Seq.start`.
        """
        rows, dtype = len(memory.scale), memory.scale.dtype
        self.places_target.embed(jnp.zeros((1, length, self.embedding), dtype), jnp.arange(length))
        windows = [nothing_before(rows, self.width, self.kernel, dtype) for _ in self.decoder]
        looks = [
            layer.initial_history(attended)
            for layer, attended in zip(self.decoder, memory.attended, strict=True)
        ]
        return Decoding(jnp.zeros((), jnp.int32), windows, looks)

    def step(
        self, state: Decoding, memory: Encoded, tokens: jax.Array
    ) -> tuple[jax.Array, Decoding]:
        """See `Seq2Seq.step`."""
        logits, state = self._continue(state, memory, tokens[:, None])
        return logits[:, 0], state

    @classmethod
    def alignment(cls, maps: Mapping[str, AttentionMap]) -> jax.Array:
        """Returns the attention weights to the source [B,Tq,S] averaged over all layers and heads
        in `maps`, the attention maps of a pass by path; raises `UserError` if no layer attends. See
        `Seq2Seq.alignment`.
        """
        between = "target", "source"
        looks = [heads for heads in maps.values() if (heads.rows, heads.columns) == between]
        of_source = [heads.weights.mean(axis=1) for heads in looks]
        if not of_source:
            raise UserError("convs2s: attend='none' has no maps of the source")
        return jnp.stack(of_source).mean(axis=0)

    def _continue(
        self, state: Decoding, memory: Encoded, tokens: jax.Array
    ) -> tuple[jax.Array, Decoding]:
        """Computes the logits [B,T,V] of the words after each of tokens [B,T], which follow those
        in the decoding `state`, with the encoded source `memory`; returns them and the next state.
        """
        positions = token_positions(state.fed, tokens.shape[1])
        g = self.drop(self.places_target.embed(self.embed_target(tokens), positions))  # [B,T,f]
        h, windows, looks = self.into_decoder(g), [], []
        for layer, attended, past, history in zip(
            self.decoder, memory.attended, state.windows, state.looks, strict=True
        ):
            h, window, look = layer(h, g, attended, memory.scale, past, history, state.fed)
            windows.append(window)
            looks.append(look)
        logits = self.out(self.drop(self.out_decoder(h)))
        return logits, Decoding(state.fed + tokens.shape[1], windows, looks)
