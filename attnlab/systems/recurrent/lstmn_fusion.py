"""Two sequences read by Long Short-Term Memory-Networks (Cheng et al. 2016): classification of
pairs, and translation.

One LSTMN layer reads the source, y_1, ..., y_S: hidden states gamma_j, cells alpha_j. Another reads
the target, x_1, ..., x_T. `fusion` says how the second looks at the first, through the mechanism of
`inter_attention`:

    shallow   z_t = tanh([h_t ; attention(h_t, gamma)] W)           after the target's layer
    deep      z_t = h_t                                             the look is part of the target's layer, see `attnlab/mixers/lstmn.py`

    pairs         logits   = MLP([mean over j of gamma_j ; mean over t of z_t])
    translation   logits_t = z_t W_o + b                            after reading y_0 = BOS, ..., y_{t-1}

Source: J. Cheng, L. Dong, M. Lapata, "Long Short-Term Memory-Networks for Machine Reading", EMNLP
2016 (arXiv 1601.06733), section 4; the paper has no formula for shallow fusion, z_t is ours, after
Luong et al. 2015. `origin` "encoder": slot 0 of the target's layer holds what the source's layer
ended with, as in the authors' code. The source's slot of zeros is not looked at from the target; in
that code it is, and padding of the source gets weight there.

Axis letters: B batch, S source length, T target length, V vocabulary, E embedding, H width, C
classes.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.attention.view import View
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, Dropout
from attnlab.layers.initial import Embed, Initial
from attnlab.layers.lstm import LSTMState
from attnlab.mixers.lstmn import FusedLSTMNLayer, LSTMNLayer, Origin, Question, Reader
from attnlab.systems.protocol import Classifier, Seq2Seq, Side, looked, mean_of
from attnlab.systems.recurrent.lstmn import INTRA, OfSteps, Verdict, intra
from attnlab.systems.recurrent.writer import RecurrentWriter

Fusion = Literal["deep", "shallow"]
First = Literal["encoder", "zeros", "none"]
ACROSS = Need(role="cross", stepwise=True, history=True)


@flax.struct.dataclass
class Encoded:
    """The states of the source [B,S,H] and which are real [B,S], the mechanism's memory of them,
    and the last state.
    """

    states: jax.Array
    valid: jax.Array
    attended: Any
    last: LSTMState


class TwoReaders(nn.Module):
    """A layer for each sequence, and the second's look at the first.

    Attributes:
      attention, inter_attention, width, fusion, origin, question, span: as in the systems below.
      initial: how the weights start.
    """

    attention: Callable[..., Attention]
    inter_attention: Callable[..., Attention]
    width: int
    fusion: Fusion
    origin: First
    question: Question
    span: int | None
    initial: Initial

    def setup(self) -> None:
        """Creates an LSTMN layer for each sequence, the second with attention to the first inside
        (deep fusion) or behind it, with a merging layer (shallow fusion).
        """
        origin: Origin = "none" if self.origin == "none" else "zeros"
        shared = (self.attention, self.width, self.span, origin, self.question, self.initial)
        self.encoder = LSTMNLayer(*shared)
        if self.fusion == "deep":
            self.decoder: LSTMNLayer = FusedLSTMNLayer(*shared, self.inter_attention)
        else:
            self.decoder = LSTMNLayer(*shared)
            self.search = self.inter_attention(width=self.width, name="inter_attention")
            self.merge = Dense(self.width, use_bias=False, kernel_init=self.initial.kernel())

    def encode(self, y: jax.Array, valid: jax.Array) -> Encoded:
        """Reads the embedded source y [B,S,E], real at `valid` [B,S]; returns an `Encoded` of its
        states [B,S,H], `valid`, the inter-attention's memory of them, and the last state.
        """
        slots, reader = self.encoder(y, valid)
        attended = (
            self.decoder.remember(slots)
            if self.fusion == "deep"
            else self.search.remember(slots.hidden, valid)
        )
        return Encoded(slots.hidden, valid, attended, reader.last)

    def decode(self, source: Encoded, x: jax.Array, valid: jax.Array) -> jax.Array:
        """Read the target [B,T,E]: z [B,T,H]. With shallow fusion all looks at the source are
        one.
        """
        slots, _ = self.decoder(x, valid, first=self._first(source), other=source.attended)
        return self._fuse(slots.hidden, source, 0)[0]

    def start(self, source: Encoded, length: int) -> Reader:
        """Returns the `Reader`, the state of the second layer, before the first of `length` steps,
        begun from the encoded source.
        """
        rows, dtype, first = len(source.states), source.states.dtype, self._first(source)
        reader = self.decoder.begin(rows, length, dtype, first=first, other=source.attended)
        if self.fusion == "deep":
            return reader
        return dataclasses.replace(reader, looks=self.search.initial_history(source.attended))

    def step(self, source: Encoded, reader: Reader, x: jax.Array) -> tuple[jax.Array, Reader]:
        """Computes one step of the second layer on x [B,E] from its state `reader`, with the
        encoded `source`; returns its output z [B,H], fused with the source, and the next state.
        """
        following = self.decoder.step(
            reader, x, self.decoder.contributions(x), jnp.ones(len(x), bool), source.attended
        )
        z, looks = self._fuse(following.last.h[:, None], source, reader.fed, following.looks)
        return z[:, 0], dataclasses.replace(following, looks=looks)

    def _first(self, source: Encoded) -> LSTMState | None:
        return source.last if self.origin == "encoder" else None

    def _fuse(
        self, states: jax.Array, source: Encoded, fed: jax.Array | int, looks: Any = None
    ) -> tuple[jax.Array, Any]:
        """Computes z [B,t,H] of the target's `states` [B,t,H]: the states themselves for deep
        fusion, else merged with their contexts from the encoded source; returns z and the next
        attention history (`looks` before); `fed`: the number of earlier states.
        """
        if self.fusion == "deep":
            return states, looks
        view = View(positions=fed)
        reading = self.search.read(states, source.attended, view, history=looks)
        pairs = jnp.concatenate([states, looked(self, reading)], axis=-1)
        return jnp.tanh(self.merge(pairs)), reading.history


class Fused(OfSteps):
    """Base of both systems, which have these fields; each says what they are.

    Attributes:
      query_side: the side of the rows of inter-attention.
    """

    query_side: ClassVar[Side]

    attention: Callable[..., Attention]
    inter_attention: Callable[..., Attention]
    embedding: int = 64
    width: int = 64
    fusion: Fusion = "deep"
    origin: First = "encoder"
    question: Question = "word and summary"
    span: int | None = None
    uniform: float = 0.0
    dropout: float = 0.0

    lengths = {"span": "within"}
    parts = {"attention": MECHANISMS, "inter_attention": MECHANISMS}
    needs = {"attention": INTRA, "inter_attention": dataclasses.replace(ACROSS, values=True)}

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """Returns the `Need` of both attention slots for the config fields `chosen`: of the
        intra-attention by span and origin, of the inter-attention with separate values for deep
        fusion only.
        """
        span, origin, fusion = (
            chosen.get(field, getattr(cls, field)) for field in ("span", "origin", "fusion")
        )
        return {
            "attention": intra(span, "none" if origin == "none" else "zeros"),
            "inter_attention": dataclasses.replace(ACROSS, values=fusion == "deep"),
        }

    @nn.nowrap
    def two_readers(self, initial: Initial) -> TwoReaders:
        """The layers of both sequences, with the look of the second at the first."""
        looks = self.attention, self.inter_attention, self.width, self.fusion
        return TwoReaders(*looks, self.origin, self.question, self.span, initial)

    @classmethod
    def between(cls, name: str) -> tuple[Side, Side]:
        """See `System.between`."""
        if name.endswith("inter_attention"):
            return cls.query_side, "source"
        encoder = name.startswith("readers/encoder")
        return ("source", "source") if encoder else ("target_in", "target_in")


class LSTMNPairClassifier(Fused, Classifier):
    """LSTMN for pairs of texts (Cheng et al. 2016): two LSTMNs with deep or shallow fusion, their
    mean states, and a small MLP.

    Attributes:
      attention: factory of the mechanism inside each text, one that reads values apart from keys,
        and as they are; called with 2 H.
      inter_attention: factory of the mechanism between the texts; called with 2 H (deep fusion,
        values apart) or H (shallow).
      embedding: E, the width of the embeddings of words, one table for both texts.
      width: H of both layers, and of the hidden layers of the MLP.
      fusion: "deep" (the look enters the cell) or "shallow" (it is put beside the state
        afterwards).
      origin: what slot 0 of the second text holds: "encoder" (where the first text ended), "zeros",
        or there is none in either ("none").
      question: what asks inside a text: "word and summary" (the paper) or "word".
      span: how many steps back can be seen inside a text; None for all.
      uniform: weights start uniform in [-uniform, uniform], the authors' being 0.05, and 1 is added
        to the forget gates' biases all the same; 0 for the initializers of `Initial`. The
        mechanisms' own start as they say.
      dropout: rate on embeddings and before the last layer of the MLP.

    Card: Cheng, Dong, Lapata, Long Short-Term Memory-Networks for Machine Reading, EMNLP 2016.
    """

    texts = (2,)
    query_side = "target_in"

    def setup(self) -> None:
        """Creates the embedding, the two LSTMN readers, the classifier's layers and dropout."""
        initial = Initial(uniform=self.uniform)
        self.embed = Embed(
            self.vocabulary, self.embedding, embedding_init=initial.embedding(self.embedding)
        )
        self.readers = self.two_readers(initial)
        self.verdict = Verdict(self.width, self.classes, self.dropout, initial)
        self.drop = Dropout(self.dropout)

    def __call__(self, source: jax.Array, target: jax.Array | None = None) -> jax.Array:
        """Computes the logits [B,C] of pairs of texts, `source` [B,S] and `target` [B,T], from the
        mean states of both; raises `UserError` without a second text. See `Classifier.__call__`.
        """
        if target is None:
            raise UserError(
                f"lstmn_pair: {self.fusion} fusion wants two texts, here is one; choose"
                " 'lstmn_classifier'"
            )
        first = self.readers.encode(self.drop(self.embed(source)), self.real(source))
        second = self.readers.decode(first, self.drop(self.embed(target)), self.real(target))
        means = mean_of(first.states, first.valid), mean_of(second, self.real(target))
        return self.verdict(jnp.concatenate(means, axis=-1))


class LSTMNTranslator(Fused, RecurrentWriter, Seq2Seq):
    """LSTMN encoder-decoder (Cheng et al. 2016): two LSTMNs with deep or shallow fusion; the second
    one generates.

    Attributes:
      attention: factory of the mechanism inside each sequence, one that reads values apart from
        keys, and as they are; called with 2 H.
      inter_attention: factory of the mechanism that looks at the source; called with 2 H (deep
        fusion, values apart) or H (shallow).
      embedding: E, both sides.
      width: H of both layers.
      fusion: "deep" (the look enters the cell) or "shallow" (it is put beside the state
        afterwards).
      origin: what slot 0 of the target holds: "encoder" (where the source ended), "zeros", or there
        is none in either ("none").
      question: what asks inside a sequence: "word and summary" (the paper) or "word".
      span: how many steps back can be seen inside a sequence; None for all.
      uniform: weights start uniform in [-uniform, uniform], and 1 is added to the forget gates'
        biases all the same; 0 for the initializers of `Initial`. The mechanisms have their own
        initializers.
      dropout: rate on embeddings and on z.

    Card: Cheng, Dong, Lapata, Long Short-Term Memory-Networks for Machine Reading, EMNLP 2016.
    """

    width: int = 128

    query_side = "target"

    def setup(self) -> None:
        initial = Initial(uniform=self.uniform)
        table = self.add_word_layers(initial, initial.word(1.0), self.embedding, self.dropout)
        self.embed_source = table(self.source_vocabulary)
        self.readers = self.two_readers(initial)

    def encode(self, source: jax.Array) -> Encoded:
        """See `Seq2Seq.encode`."""
        return self.readers.encode(self.drop(self.embed_source(source)), self.real(source))

    def decode(self, memory: Encoded, target_in: jax.Array) -> jax.Array:
        """See `Seq2Seq.decode`."""
        z = self.readers.decode(memory, self.embedded(target_in), self.real(target_in))
        return self.out(self.drop(z))

    def start(self, memory: Encoded, length: int) -> Reader:
        """See `Seq2Seq.start`."""
        return self.readers.start(memory, length)

    def step(self, state: Reader, memory: Encoded, tokens: jax.Array) -> tuple[jax.Array, Reader]:
        """See `Seq2Seq.step`."""
        z, state = self.readers.step(memory, state, self.embed_target(tokens))
        return self.out(z), state
