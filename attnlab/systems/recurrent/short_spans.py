"""Language models that use the last few outputs of an LSTM (Daniluk et al. 2017): with attention to
them, and without, by a cut of each output into parts. The class of each has its formula.

Axis letters: B batch, T time, V vocabulary, E embedding, H width of an LSTM layer, k width of h* and
of what predicts, L window, N order.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.interventions import intervening
from attnlab.attention.needs import Need
from attnlab.attention.protocol import LOSSES, MAPS, Attention
from attnlab.attention.view import View
from attnlab.attention.visibility import Causal, Rule, Window
from attnlab.attention.visibility import Dense as Allowed
from attnlab.config.registry import Part, kind, made
from attnlab.errors import UserError
from attnlab.layers import CELLS
from attnlab.layers.dense import Dense
from attnlab.layers.history import after, latest
from attnlab.layers.initial import Initial
from attnlab.layers.lstm import LSTMLayer
from attnlab.layers.readers import States
from attnlab.systems.protocol import AttentionMap, looked
from attnlab.systems.recurrent.lstm_lm import StackedReader


@flax.struct.dataclass
class Past:
    """The state of every layer, the last outputs [B,L,H], zeros where there are none, and where
    there are some [B,L] bool.
    """

    layers: States
    window: jax.Array
    filled: jax.Array


class AttentionLanguageModel(StackedReader, kw_only=True):
    """Attention, key-value, key-value-predict language models (Daniluk et al. 2017): by mechanism,
    `merge` and the widths.

    Attention, key-value and key-value-predict language models (Daniluk et al. 2017): LSTMs with
    attention to their last outputs.

        h_t      = output of the top of the LSTM layers after x_1, ..., x_t                             [H]
        r_t      = attention(h_t, (h_{t-L}, ..., h_{t-1}))                                               any registered mechanism
        h*_t     = tanh(r_t W_r + h_t W_x)               `merge` "tanh": the attention model, with `single` attention and H = k
                 = r_t                                   `merge` "none": what the mechanism gives, which has to merge on its own
        logits_t = h*_t W_o + b                                                                          of the word after x_t

    The key-value model is the second line with the mechanism `key_value` and H = 2 k, the
    key-value-predict model with `key_value_predict` and H = 3 k: these cut h into parts and end
    with h*_t = tanh(r_t W_r + own_t W_x). The window does not contain the present output. At the
    beginning of a text it has fewer than L outputs; the first word attends to one slot of zeros,
    so that r_1 = 0 in all three models. A piece of T words is computed in blocks of L if that is
    cheaper: each block needs at most 2 L outputs, O(T L) scores instead of O(T (T + L)).

    No look depends on earlier ones here (`Need.history` is False): the slots of the window move
    from step to step, so the state of a look would be about other slots at the next, and blocks
    could not be computed side by side.

    Source: M. Daniluk, T. Rocktäschel, J. Welbl, S. Riedel, "Frustratingly Short Attention Spans
    in Neural Language Modeling", ICLR 2017 (arXiv 1702.04521), sections 2.1-2.3. When a text is
    read in pieces the authors' window does not reach back into the piece before (`carry` "state");
    here it may. Beyond the paper: several layers, dropout.

    Attributes:
      attention: factory of the mechanism; called with H if its context is merged here, with k if it
        merges itself.
      embedding: E, the width of the embeddings of words.
      state: H, the width of the state of every LSTM layer; of the paper's models k, 2 k or 3 k.
      width: k, the width of h*, the vector that the next word is predicted from.
      layers: how many LSTM layers there are; the paper has one.
      window: L, how many earlier outputs the attention can see.
      carry: what is passed from one piece of text to the next: "window" (the LSTM's state and the
        last L outputs, so that a text read in pieces is as one read at once) or "state" (no
        outputs: the authors' setting). `step` carries both in any case.
      merge: how h* is computed, see above.
      cell: the recurrent layers: "lstm" (the paper's), "gru" or "tanh".
      uniform: weights start uniform in [-uniform, uniform]; others report 0.1 for the paper, which
        is not checked; 0 for the initializers of `Initial`. The mechanism has its own initializers.
      dropout: share of the input of every layer and of h* that training sets to 0.

    Card: Daniluk, Rocktäschel, Welbl, Riedel, Frustratingly Short Attention Spans in Neural
    Language Modeling, ICLR 2017.
    """

    attention: Callable[..., Attention]
    embedding: int = 96
    state: int = 128
    width: int = 128
    window: int = 10
    carry: Literal["window", "state"] = "window"
    merge: Literal["tanh", "none"] = "tanh"
    cell: Part = "lstm"

    lengths = {"window": "within"}
    parts = {"attention": MECHANISMS, "cell": CELLS}
    needs = {
        "attention": Need(
            role="self", direction="causal", stepwise=True, dense=True, places="adrift"
        )
    }

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """Returns the class's `Need` by attention slot; raises `UserError` where, for the mechanism
        and `merge` among the config fields `chosen`, the current output would be merged with the
        context twice or never. See `System.asks`.
        """
        mechanism = kind(made(MECHANISMS, chosen.get("attention", "single")))
        merge = chosen.get("merge", cls.merge)
        if mechanism.capabilities.own and merge == "tanh":
            raise UserError(
                f"system.merge='tanh': {mechanism.__name__} merges the own output itself; set"
                " system.merge='none'"
            )
        if not mechanism.capabilities.own and merge == "none":
            raise UserError(
                f"system.merge='none': {mechanism.__name__} only says what it found, without the"
                " own output; set it to 'tanh'"
            )
        return cls.needs

    def setup(self) -> None:
        """Creates the embedding, the LSTM layers, the attention, the merging projections (for merge
        "tanh") and the output layer.
        """
        initial = Initial(uniform=self.uniform)
        self.add_reader(initial, initial.word(0.3), self.state, made(CELLS, self.cell))
        width = self.state if self.merge == "tanh" else self.width
        self.look = self.attention(width=width, name="attention")
        if self.merge == "tanh":
            self.of_found = Dense(self.width, use_bias=False, kernel_init=initial.kernel())
            self.of_own = Dense(self.width, use_bias=False, kernel_init=initial.kernel())
        self.out = Dense(self.vocabulary, kernel_init=initial.output())

    def start(self, rows: int, room: int) -> Past:
        """See `LanguageModel.start`."""
        layers = self.no_states(rows, self.state, made(CELLS, self.cell))
        return Past(layers, *self._nothing(rows))

    def read(self, state: Past, tokens: jax.Array) -> tuple[jax.Array, Past]:
        """See `LanguageModel.read`; with `carry` "state" each piece looks back at itself only."""
        if self.carry == "state":
            state = Past(state.layers, *self._nothing(len(tokens)))
        return self._read(state, tokens)

    def step(self, state: Past, tokens: jax.Array) -> tuple[jax.Array, Past]:
        """See `LanguageModel.step`."""
        logits, state = self._read(state, tokens[:, None])
        return logits[:, 0], state

    @classmethod
    def maps(cls, collected: Mapping[str, Any]) -> dict[str, AttentionMap]:
        """Returns the `AttentionMap` of each attention of a pass by its path, made from the
        variables `collected`, weights cut to the words that were read, [B,H,T,T]; earlier words and
        the slot of zeros are left out. See `System.maps`.
        """
        maps = super().maps(collected)
        return {
            name: dataclasses.replace(heads, weights=_of_words(heads.weights))
            for name, heads in maps.items()
        }

    def _nothing(self, rows: int) -> tuple[jax.Array, jax.Array]:
        """A window without outputs."""
        return jnp.zeros((rows, self.window, self.state)), jnp.zeros((rows, self.window), bool)

    def _contexts(self, outputs: jax.Array, slots: jax.Array, filled: jax.Array) -> jax.Array:
        """Computes the contexts [B,T,n] of outputs [B,T,H], each attending to the `window` slots
        before it in `slots` [B,L+T,H] where `filled` [B,L+T] is True, and always to the last of
        them, in blocks if that takes fewer scores, no maps, losses or samples are collected and
        nothing intervenes in attention. The last T slots are the outputs themselves.

        Query t has position L + t - 1, since it must not see its own output.
        """
        length, size = outputs.shape[1], self.window
        spare = -length % max(size, 1)  # `Window` refuses 0
        at_once, in_blocks = length * (size + length), (length + spare) * 2 * size  # scores
        aside = any(map(self.is_mutable_collection, (MAPS, LOSSES, SAMPLES)))
        if at_once <= in_blocks or aside or intervening():
            memory, view = self.look.remember(slots[:, :-1]), View(_sight(size, filled[:, :-1]))
            return looked(self, self.look.read(outputs, memory, view))
        asks, slots, filled = (
            jnp.pad(x, [(0, 0), (0, spare)] + [(0, 0)] * (x.ndim - 2))
            for x in (outputs, slots, filled)
        )
        memory = self.look.remember(_neighbours(slots, size))
        view = View(_sight(size, _neighbours(filled, size)), positions=size - 1)
        contexts = self.look.read(asks.reshape(-1, size, self.state), memory, view).context
        return contexts.reshape(len(outputs), length + spare, -1)[:, :length]

    def _read(self, state: Past, tokens: jax.Array) -> tuple[jax.Array, Past]:
        """Computes the logits [B,T,V] of the words after each of tokens [B,T], read after those in
        `state`, and returns them and the state after the tokens.
        """
        valid = self.real(tokens)
        counts = valid.sum(axis=1, dtype=jnp.int32)
        outputs, layers = self.reader(self.embed(tokens), valid, state.layers)
        slots, filled = after(state.window, outputs), jnp.concatenate([state.filled, valid], axis=1)
        star = self._contexts(outputs, slots, filled)
        if self.merge == "tanh":
            star = jnp.tanh(self.of_found(star) + self.of_own(outputs))
        following = Past(layers, *(latest(x, counts, self.window) for x in (slots, filled)))
        return self.out(self.drop(star)), following


def _neighbours(x: jax.Array, length: int) -> jax.Array:
    """[B,(n+1) L,...] to [B n,2 L,...]: every two blocks of L that follow each other, in one."""
    blocks = x.reshape(len(x), -1, length, *x.shape[2:])
    pairs = jnp.concatenate([blocks[:, :-1], blocks[:, 1:]], axis=2)
    return pairs.reshape(-1, *pairs.shape[2:])


def _sight(window: int, filled: jax.Array) -> Rule:
    """The last `window` filled slots [B,L+T-1], and always the last one: before the first word it
    holds zeros.
    """
    return Causal() & Window(window) & (Allowed(filled[:, None, None]) | Window(1))


def _of_words(weights: jax.Array) -> jax.Array:
    """[B,H,T,L+T-1] to [B,H,T,T]: word j is seen in slot L + j, and the last by no one."""
    queries, slots = weights.shape[2:]
    return jnp.pad(weights[..., slots - queries + 1 :], ((0, 0), (0, 0), (0, 0), (0, 1)))


@flax.struct.dataclass
class LateParts:
    """The state of every layer, and of the parts i = 2..N-1 what is still to be used: the last i -
    1 of them, [B,i-1,k].
    """

    layers: States
    parts: tuple[jax.Array, ...]


class NgramRNN(StackedReader, kw_only=True):
    """N-gram RNN (Daniluk et al. 2017): the LSTM's last N - 1 outputs predict together, each with
    another part.

    The N-gram RNN (Daniluk et al. 2017): no attention; the output is cut into parts, each of which
    predicts a step later than the last.

        [h^1_t ; ... ; h^{N-1}_t] = output of the top of the LSTM layers after x_1, ..., x_t             parts of width k
        h*_t     = tanh([h^1_t ; h^2_{t-1} ; ... ; h^{N-1}_{t-N+2}] W_N)                                  parts before the text are zeros
        logits_t = h*_t W_o + b                                                                           of the word after x_t

    N = 4 takes three parts, those of the present output and of the two before it; N = 2 is an LSTM
    language model with one more layer.

    Source: M. Daniluk, T. Rocktäschel, J. Welbl, S. Riedel, "Frustratingly Short Attention Spans
    in Neural Language Modeling", ICLR 2017 (arXiv 1702.04521), section 2.4. Beyond the paper:
    several layers, dropout.

    Attributes:
      order: N, how many words an n-gram has, at least 2; the LSTM layers are (N - 1) k wide.
      embedding: E, the width of the embeddings of words.
      width: k, the width of the part of each output that predicts.
      layers: how many LSTM layers there are; the paper has one.
      uniform: weights start uniform in [-uniform, uniform]; others report 0.1 for the paper, which
        is not checked; 0 for the initializers of `Initial`.
      dropout: share of the input of every layer and of h* that training sets to 0.

    Card: Daniluk, Rocktäschel, Welbl, Riedel, Frustratingly Short Attention Spans in Neural
    Language Modeling, ICLR 2017.
    """

    order: int = 4
    embedding: int = 96
    width: int = 88

    def setup(self) -> None:
        """Creates the embedding, the LSTM layers of N - 1 parts, the merging layer and the output
        layer; raises `UserError` for an order N below 2.
        """
        if self.order < 2:
            raise UserError(
                f"ngram_rnn: order={self.order}, must be at least 2: N words are the one predicted"
                " and those before it"
            )
        initial = Initial(uniform=self.uniform)
        self.add_reader(initial, initial.word(0.3), (self.order - 1) * self.width, LSTMLayer)
        self.merge = Dense(self.width, use_bias=False, kernel_init=initial.kernel())
        self.out = Dense(self.vocabulary, kernel_init=initial.output())

    def start(self, rows: int, room: int) -> LateParts:
        """See `LanguageModel.start`."""
        none = tuple(jnp.zeros((rows, number, self.width)) for number in range(1, self.order - 1))
        return LateParts(self.no_states(rows, (self.order - 1) * self.width, LSTMLayer), none)

    def read(self, state: LateParts, tokens: jax.Array) -> tuple[jax.Array, LateParts]:
        """Computes the logits [B,T,V] of the words after each of tokens [B,T], read after those in
        `state`, from part i of the LSTM's output of i - 1 steps before, i = 1..N-1; returns them
        and the state after the tokens. See `LanguageModel.read`.
        """
        valid = self.real(tokens)
        counts = valid.sum(axis=1, dtype=jnp.int32)
        outputs, layers = self.reader(self.embed(tokens), valid, state.layers)
        first, *later = jnp.split(outputs, self.order - 1, axis=-1)
        slots = [after(past, part) for past, part in zip(state.parts, later, strict=True)]
        late = [part[:, : tokens.shape[1]] for part in slots]  # part i is i - 1 steps late
        star = jnp.tanh(self.merge(jnp.concatenate([first, *late], axis=-1)))
        windows = tuple(latest(part, counts, number) for number, part in enumerate(slots, start=1))
        return self.out(self.drop(star)), LateParts(layers, windows)
