"""Long Short-Term Memory-Networks (Cheng et al. 2016) that read one text: as a language model, and
as a classifier.

    x^0_t      = embedding of word t
    x^l_t      = LSTMN layer l over x^{l-1}                          each attends to its own past
    logits_t   = x^L_t W_o + b                                       language model: of the word after t
    logits     = MLP(mean over t of x^L_t)                           classifier; the MLP has two hidden layers with ReLU, and may be
                                                                     given the last x^L instead of
                                                                     the mean

The layer itself stands in `attnlab/mixers/lstmn.py`; models of two texts in `lstmn_fusion.py`.

Source: J. Cheng, L. Dong, M. Lapata, "Long Short-Term Memory-Networks for Machine Reading", EMNLP
2016 (arXiv 1601.06733), section 3; the classifier's layers, and slot 0, as in the authors' code.
The language model keeps the last `span` steps, the paper's upper bound of its tape; a text read in
pieces is as one read at once. Question, weights of the gates and initializers as told
in the layer's file. Beyond the paper: dropout between layers.

Axis letters: B batch, T time, V vocabulary, E embedding, H width of a layer, L layers, C classes.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.interventions import intervening
from attnlab.attention.needs import Need
from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import LOSSES, MAPS, Attention, Capabilities
from attnlab.config.registry import behind, kind, made
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, Dropout
from attnlab.layers.history import latest
from attnlab.layers.initial import Embed, Initial
from attnlab.mixers.lstmn import LSTMNLayer, Origin, Question, Slots, sight
from attnlab.systems.protocol import AttentionMap, Classifier, LanguageModel, System, mean_of

# A step reads the cells c~ and writes the next cell to the tape: with a projection, or weights that
# sum to more than one, they would grow at every step and overflow.
# `history` is not declared: the language model makes the memory anew for every piece, from the
# slots that are left, so the state of earlier looks would be about slots that have moved.
INTRA = Need(role="self", direction="causal", cache=True, stepwise=True, values="unprojected")
SHORTEST = 8  # words of a piece of a longer text
TAPE = dataclasses.replace(INTRA, places="adrift")  # of a stream whose beginning is out of reach


class OfSteps(System):
    """Mixin of the systems of LSTMN layers, whose maps of intra-attention are of steps. Named before
    the class of the kind of system.
    """

    @classmethod
    def maps(cls, collected: Mapping[str, Any]) -> dict[str, AttentionMap]:
        """Returns the `AttentionMap` of each attention of a pass by its path, made from the
        variables `collected`, those of intra-attention cut to the steps that were read, [B,H,T,T];
        slot 0 and what was read before are left out.

        Of a single step nothing is left but itself, which no step sees; its slot is not there yet
        where spare slots are left out.
        """
        maps = super().maps(collected)
        for name, heads in maps.items():
            weights, steps = heads.weights, heads.weights.shape[2]
            if heads.rows == heads.columns:
                alone = jnp.zeros_like(weights, shape=(*weights.shape[:3], 1))
                cut = weights[..., -steps:] if steps > 1 else alone
                maps[name] = dataclasses.replace(heads, weights=cut)
        return maps


def intra(span: int | None, origin: Origin, need: Need = INTRA) -> Need:
    """The need of a mechanism for attention to earlier steps."""
    return need.under(sight(span, origin))


@flax.struct.dataclass
class Past:
    """Of one layer: its last steps, `span` slots, and h~ of the last one [B,H]."""

    slots: Slots
    summary: jax.Array


class OneText(OfSteps, kw_only=True):
    """Base of both systems, which have these fields; each says what they are."""

    attention: Callable[..., Attention]
    embedding: int = 64
    width: int = 64
    layers: int = 1
    span: int | None = None
    origin: Origin = "zeros"
    question: Question = "word and summary"
    uniform: float = 0.0
    dropout: float = 0.0

    lengths = {"span": "within"}
    parts = {"attention": MECHANISMS}

    @nn.nowrap
    def add_layers(self, initial: Initial, embedding_init: Any) -> None:
        """Adds, in `setup`, the embedding, the LSTMN layers and dropout."""
        self.embed = Embed(self.vocabulary, self.embedding, embedding_init=embedding_init)  # type: ignore[attr-defined]
        self.reader = [
            LSTMNLayer(self.attention, self.width, self.span, self.origin, self.question, initial)
            for _ in range(self.layers)
        ]
        self.drop = Dropout(self.dropout)


class LSTMNLanguageModel(OneText, LanguageModel, kw_only=True):
    """LSTMN language model (Cheng et al. 2016): LSTMN layers, each looking back at its last `span`
    steps.

    Attributes:
      attention: factory of the mechanism, one that reads values apart from keys, and as they are;
        called with 2 H.
      embedding: E, the width of the embeddings of words.
      width: H, the width of the state of every layer.
      layers: L, how many LSTMN layers there are.
      span: how many steps back can be seen.
      origin: whether there is a slot of zeros that any step can see ("zeros") or not ("none"). It
        stands nowhere in a text: with a mechanism that knows of distances choose "none".
      question: what asks: "word and summary" (the paper) or "word".
      uniform: weights start uniform in [-uniform, uniform], and 1 is added to the forget gates'
        biases all the same; 0 for the initializers of `Initial`. The mechanism has its own
        initializers.
      dropout: rate on the input of every layer and on what the output layer sees.

    Card: Cheng, Dong, Lapata, Long Short-Term Memory-Networks for Machine Reading, EMNLP 2016.
    """

    span: int = 32

    needs = {"attention": TAPE}

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """Returns the `Need` of the intra-attention slot for the config fields `chosen`; raises
        `UserError` for positions that measure distances together with a slot of zeros, which has no
        position in the text. See `System.asks`.
        """
        origin, look = chosen.get("origin", cls.origin), chosen["attention"]
        scheme = kind(made(POSITIONS, getattr(look, "keywords", {}).get("positions", "none")))
        # else it is refused whatever its positions are
        fits = getattr(behind(look), "capabilities", Capabilities()).unprojected
        if fits and origin == "zeros" and scheme.hooks & {"score", "value"}:
            raise UserError(
                f"system.attention.positions: {scheme.__name__} measures distances, also from slot"
                " 0; set system.origin='none'"
            )
        return {"attention": intra(chosen.get("span", cls.span), origin, TAPE)}

    def setup(self) -> None:
        """Creates the embedding, the LSTMN layers, the output layer and dropout."""
        initial = Initial(uniform=self.uniform)
        self.add_layers(initial, initial.word(0.3))
        self.out = Dense(self.vocabulary, kernel_init=initial.output())

    def start(self, rows: int, room: int) -> tuple[Past, ...]:
        """See `LanguageModel.start`."""
        return tuple(
            Past(Slots.empty(rows, self.span, self.width), jnp.zeros((rows, self.width)))
            for _ in range(self.layers)
        )

    def read(
        self, state: tuple[Past, ...], tokens: jax.Array
    ) -> tuple[jax.Array, tuple[Past, ...]]:
        """Computes the logits [B,T,V] of the words after each of tokens [B,T], read after those in
        `state`, and the state after them, a tuple of a `Past` for each layer; texts longer than 2
        n, n the greater of `span` and 8, are read in pieces of n words, unless maps, losses or
        samples are collected or something intervenes in attention. See `LanguageModel.read`.

        Each step carries arrays as long as its piece.
        """
        length, block = tokens.shape[1], max(self.span, SHORTEST)
        aside = any(map(self.is_mutable_collection, (MAPS, SAMPLES, LOSSES)))
        if length <= 2 * block or aside or intervening():
            x, state = self._read(state, tokens)
        else:
            count = -(-length // block)
            pieces = jnp.pad(tokens, ((0, 0), (0, count * block - length))).reshape(
                len(tokens), count, block
            )
            dtype = self.embed.embedding.dtype
            state = jax.tree.map(
                lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x,
                state,
            )
            scan = nn.scan(
                lambda system, state, piece: system._read(state, piece)[::-1],
                variable_broadcast="params",
                split_rngs={"params": False, "dropout": True},
                in_axes=1,
                out_axes=1,
            )
            state, x = scan(self, state, pieces)
            x = x.reshape(len(tokens), count * block, self.width)[:, :length]
        return self.out(self.drop(x)), state

    def _read(
        self, state: tuple[Past, ...], tokens: jax.Array
    ) -> tuple[jax.Array, tuple[Past, ...]]:
        """Runs all layers over a piece, tokens [B,T], from the layers' states in `state`; returns
        the top layer's hidden states [B,T,H], the input of the output layer, and a tuple of the
        layers' states after it.

        The memory of the earlier slots is computed again, since it may depend on their positions.
        """
        valid = self.real(tokens)
        counts = valid.sum(axis=1, dtype=jnp.int32)
        x, following = self.embed(tokens), []
        for layer, past in zip(self.reader, state, strict=True):
            slots, reader = layer(self.drop(x), valid, past.slots, past.summary)
            window = jax.tree.map(lambda x: latest(x, counts, self.span), past.slots.then(slots))
            following.append(Past(window, reader.summary))
            x = slots.hidden
        return x, tuple(following)


class Verdict(nn.Module):
    """The last layers of the authors' classifiers: two hidden layers with ReLU, dropout, and the
    classes.

    Attributes:
      width: H, of the hidden layers.
      classes: C.
      dropout: rate on what the last layer sees.
      initial: how the weights start.
    """

    width: int
    classes: int
    dropout: float
    initial: Initial

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Computes logits [B,C] of x [B,d] by two hidden layers with ReLU, dropout and a linear
        layer.
        """
        for name in ("lower", "upper"):
            x = jax.nn.relu(Dense(self.width, kernel_init=self.initial.kernel(), name=name)(x))
        return Dense(self.classes, kernel_init=self.initial.kernel(), name="out")(
            Dropout(self.dropout)(x)
        )


def final(states: jax.Array, valid: jax.Array) -> jax.Array:
    """The last real one [B,H] of the states [B,T,H]; zeros where there is none."""
    index = jnp.maximum(valid.sum(axis=1) - 1, 0)
    last = jnp.take_along_axis(states, index[:, None, None], axis=1)[:, 0]
    return jnp.where(valid.any(axis=1)[:, None], last, 0)


class LSTMNClassifier(OneText, Classifier, kw_only=True):
    """LSTMN classifier (Cheng et al. 2016): LSTMN layers, the mean of the top one's states, and a
    small MLP.

    Attributes:
      attention: factory of the mechanism, one that reads values apart from keys, and as they are;
        called with 2 H.
      embedding: E, the width of the embeddings of words.
      width: H of every layer, and of the hidden layers of the MLP.
      layers: L, how many LSTMN layers there are.
      span: how many steps back can be seen; None for all.
      origin: whether there is a slot of zeros before a text that any step can see ("zeros") or not
        ("none").
      pooling: the vector of a text: the "mean" of the states of the top layer (the paper), or the
        "last" one.
      question: what asks: "word and summary" (the paper) or "word" (only the encoder in the
        authors' code for SNLI).
      uniform: weights start uniform in [-uniform, uniform], 0.05 in that code, and 1 is added to
        the forget gates' biases all the same; 0 for the initializers of `Initial`. The mechanism's
        own start as it says.
      deviation: of the first embeddings, N(0, deviation^2); 0 for the initializers of `Initial`.
        Wide ones are better where words are few and seen often, narrow ones where texts are few.
      dropout: rate on the input of every layer and before the last layer of the MLP.

    Card: Cheng, Dong, Lapata, Long Short-Term Memory-Networks for Machine Reading, EMNLP 2016.
    """

    pooling: Literal["mean", "last"] = "mean"
    deviation: float = 0.0

    needs = {"attention": INTRA}

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """See `System.asks`."""
        return {"attention": intra(chosen.get("span", cls.span), chosen.get("origin", cls.origin))}

    def setup(self) -> None:
        """Creates the embedding, the LSTMN layers, the classifier's hidden layers and dropout."""
        initial = Initial(uniform=self.uniform)
        narrow = initial.embedding(self.embedding)
        self.add_layers(initial, initial.word(self.deviation) if self.deviation else narrow)
        self.verdict = Verdict(self.width, self.classes, self.dropout, initial)

    def __call__(self, source: jax.Array, target: jax.Array | None = None) -> jax.Array:
        """See `Classifier.__call__`."""
        valid, x = self.real(source), self.embed(source)
        for layer in self.reader:
            x = layer(self.drop(x), valid)[0].hidden
        return self.verdict(mean_of(x, valid) if self.pooling == "mean" else final(x, valid))
