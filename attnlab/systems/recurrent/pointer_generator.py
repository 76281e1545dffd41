"""Pointer-generator with coverage (See, Liu, Manning 2017): each word is from the vocabulary or
copied from the source.

Encoder: ann_j = [forward LSTM_j ; backward LSTM_j]. Decoder, for t = 1..T, with y_0 = BOS, f_0 = 0
and c_1 = 0:

    s_0      = relu(last W_r + b_r)                              for the state and the cell, `last` where both directions ended
    x_t      = [y_{t-1} ; f_{t-1}] W_x + b_x
    s_t      = LSTM(s_{t-1}, x_t)
    f_t, a_t = attention(s_t; keys [ann_j ; c_tj], values ann_j)  a mechanism whose weights sum to
    one; additive in the paper
    c_{t+1}  = c_t + a_t                                          coverage: sum of weights
    g_t      = sigmoid([f_t ; s_t ; x_t] w_g + b_g)               the share of generation
    P_t(w)   = g_t softmax(([s_t ; f_t] V + b) V' + b')_w + (1 - g_t) sum over j with source_j = w of a_tj
    logits_t = log P_t

The loss "coverage" of a step, sum over j of min(a_tj, c_tj), is handed out for
`config.auxiliary.coverage`; with `coverage="none"` there is neither c nor that loss. A key of which
c_tj is one more number gives the additive score of the paper, v . tanh(ann_j W_h + c_tj w_c + s_t
W_s), w_c being the last row of the score's matrix; and it gives any mechanism that takes keys apart
from values something to go by. So with coverage the mechanism must take keys apart from values,
with a score that reads keys of another width than the query. Weights of several heads are averaged
before words are copied by them and before they are added up.

Source: A. See, P. J. Liu, C. D. Manning, "Get To The Point: Summarization with Pointer-Generator
Networks", ACL 2017 (arXiv 1704.04368), section 2; coverage after Z. Tu et al., ACL 2016; copying by
attention alone is O. Vinyals, M. Fortunato, N. Jaitly, "Pointer Networks", NIPS 2015. x_t is made
of f_{t-1} too, and the first state by a layer, as in the authors' code and not in the paper.
Otherwise than there:
* A source word that the vocabulary lacks is copied as UNK: data are ids before they are batched, so
  no example has words of its own.
* Coverage is there from the first step or not at all. They trained without it first, and found that
  its loss disturbs the beginning.
* The score "additive" has no bias, asks with s_t alone (their code with the cell beside it), and
  starts by its own initializer.
* States and cells have biases as here; embeddings of source and target may be apart (`share`);
dropout. Cost: with coverage keys are projected anew at every step, O(T S H A) instead of O(S H A).

Axis letters: B batch, S source length, T target length, V vocabulary, E embedding, H encoder width,
G decoder width.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.attention.view import View
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, inner_dtype, widened
from attnlab.layers.initial import Initial
from attnlab.layers.lstm import GateInputs, LSTMCell, LSTMState
from attnlab.layers.readers import BidirectionalLSTM
from attnlab.systems.protocol import Seq2Seq, looked
from attnlab.systems.recurrent.writer import Decoding, RecurrentWriter


@flax.struct.dataclass
class Encoded:
    """What is copied and looked at, and how the decoder begins.

    Attributes:
      source: [B,S] ids.
      annotations: [B,S,2H].
      attended: the attention's memory of them; None with coverage, which changes it from step to
        step.
      first: s_0 and its cell, [B,G] each.
    """

    source: jax.Array
    annotations: jax.Array
    attended: Any
    first: LSTMState


@flax.struct.dataclass
class Step:
    """What words are made of, [B,...] of a step and [B,T,...] of all: x [E], s [G], f [2H] and the
    weights a [S].
    """

    x: jax.Array
    s: jax.Array
    context: jax.Array
    weights: jax.Array


class PointerGenerator(RecurrentWriter, Seq2Seq):
    """Pointer-generator (See et al. 2017): LSTM encoder-decoder that copies by its attention
    weights, with coverage; one vocabulary for both sides.

    Attributes:
      attention: factory of the mechanism, one whose weights are a distribution; called with the
        width of the annotations, 2H.
      embedding: E, both sides.
      encoder: H, state width of each encoder direction.
      decoder: G, state width of the decoder.
      readout: width of the layer before the scores of the vocabulary.
      coverage: "keys": what was looked at stands beside each annotation when the decoder looks
        again, which the score "location" does not see; or "none".
      share: whether source and target have one table of "embeddings" (the paper's) or none in
        common.
      uniform: weights start uniform in [-uniform, uniform]; 0 for the initializers of `Initial`.
        The mechanism's own start as it says.
      dropout: rate on the embeddings, the annotations and the readout; the paper has none.

    Card: See, Liu, Manning, Get To The Point: Summarization with Pointer-Generator Networks, ACL
    2017.
    """

    attention: Callable[..., Attention]
    embedding: int = 64
    encoder: int = 64
    decoder: int = 128
    readout: int = 64
    coverage: Literal["keys", "none"] = "keys"
    share: Literal["embeddings", "none"] = "embeddings"
    uniform: float = 0.0
    dropout: float = 0.0

    parts = {"attention": MECHANISMS}
    needs = {
        "attention": Need(
            role="cross", stepwise=True, history=True, values=True, weights="distribution"
        )
    }

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """See `System.asks`; without coverage keys and values are one."""
        values = chosen.get("coverage", cls.coverage) == "keys"
        return {"attention": dataclasses.replace(cls.needs["attention"], values=values)}

    def setup(self) -> None:
        """Creates embeddings, the bidirectional encoder, the attention, the decoder's cell and the
        gate; raises `UserError` unless both sides have one vocabulary.
        """
        if self.source_vocabulary != self.target_vocabulary:
            sizes = f"{self.source_vocabulary} and {self.target_vocabulary} words"
            raise UserError(
                f"pointer_generator: copying needs one vocabulary for both sides, not {sizes}; set"
                " vocabulary.shared=true"
            )
        initial = Initial(uniform=self.uniform)
        table = self.add_word_layers(initial, initial.word(1.0), self.embedding, self.dropout)
        dense = functools.partial(Dense, kernel_init=initial.kernel())
        if self.share == "none":
            self.embed_source = table(self.target_vocabulary)
        self.reader = BidirectionalLSTM(self.encoder, initial)
        self.first_state, self.first_cell = dense(self.decoder), dense(self.decoder)
        self.search = self.attention(width=2 * self.encoder, name="attention")
        self.of_word, self.of_context = dense(self.embedding), dense(self.embedding, use_bias=False)
        self.of_input = GateInputs(self.decoder, initial)
        self.cell = LSTMCell(self.decoder, initial)
        self.gate = dense(1)
        self.read_out = dense(self.readout)

    def encode(self, source: jax.Array) -> Encoded:
        """Encodes source ids [B,S] to an `Encoded`: the ids, the annotations [B,S,2H], the
        attention's memory of them (None if coverage is part of the keys) and the decoder's first
        state. See `Seq2Seq.encode`.
        """
        table = self.embed_target if self.share == "embeddings" else self.embed_source
        annotations, ends = self.reader(self.drop(table(source)), self.real(source))  # [B,S,2H]
        last = jax.tree.map(lambda *sides: jnp.concatenate(sides, axis=-1), *ends)
        first = LSTMState(
            jax.nn.relu(self.first_cell(last.c)), jax.nn.relu(self.first_state(last.h))
        )
        annotations = self.drop(annotations)
        covers = self.coverage == "keys"
        attended = None if covers else self.search.remember(annotations, self.real(source))
        return Encoded(source, annotations, attended, first)

    def start(self, memory: Encoded, length: int) -> Decoding:
        """See `Seq2Seq.start`; the state is s and its cell [B,G], and the coverage c [B,S] float32."""
        nothing = jnp.zeros_like(memory.annotations[:, 0])
        uncovered = jnp.zeros(memory.source.shape, inner_dtype(memory.annotations))
        looks = self.search.initial_history(self._attended(memory, uncovered))
        return Decoding(jnp.zeros((), jnp.int32), (memory.first, uncovered), nothing, looks)

    def _attended(self, memory: Encoded, covered: jax.Array) -> Any:
        """Returns the attention's memory of the annotations of the encoded source `memory`; unless
        the field `coverage` is "none" it is made anew, with the coverage so far, `covered` [B,S],
        beside each annotation in the keys.
        """
        if self.coverage == "none":
            return memory.attended
        column = covered[..., None].astype(memory.annotations.dtype)
        keys = jnp.concatenate([memory.annotations, column], axis=-1)
        return self.search.remember_pairs(keys, memory.annotations, self.real(memory.source))

    def transition(
        self, state: Decoding, word: jax.Array, memory: Encoded
    ) -> tuple[Decoding, Step]:
        """Computes one step of LSTM, attention and coverage (whose loss is recorded for coverage
        "keys") from the decoding `state`, the part `word` [B,E] of the input and the encoded source
        `memory`; returns the next state and the `Step` (x, s, context, weights). See
        `RecurrentWriter.transition`; `word` [B,E] is what y_{t-1} gives to x_t.
        """
        cell_state, covered = state.state
        x = word + self.of_context(state.context)
        following = self.cell(cell_state, self.of_input(x))
        attended, view = self._attended(memory, covered), View(positions=state.fed)
        reading = self.search.read(
            following.h[:, None], attended, view, weights=True, history=state.looks
        )
        assert reading.weights is not None  # the slot asks for them
        weights = reading.weights.mean(axis=1)[:, 0]  # [B,S]
        if self.coverage == "keys":
            overlap = jnp.minimum(weights, covered).sum(axis=-1, keepdims=True)
            reading = dataclasses.replace(reading, losses={**reading.losses, "coverage": overlap})
        context = looked(self, reading)[:, 0]
        updated = following, covered + weights
        return Decoding(state.fed + 1, updated, context, reading.history), Step(
            x, following.h, context, weights
        )

    def generate(self, words: jax.Array, steps: Step, memory: Encoded) -> jax.Array:
        """Computes log P [B,T,V] float32 of the next words from `steps`, the stacked `Step` of T
        steps: the mixture of generating from the vocabulary and copying words of the encoded source
        `memory` by their attention weights; `words` is not used. See `RecurrentWriter.generate`.
        """
        read = self.read_out(jnp.concatenate([steps.s, steps.context], axis=-1))
        scores = widened(self.out(self.drop(read)))
        gate = self.gate(jnp.concatenate([steps.context, steps.s, steps.x], axis=-1))  # [B,T,1]
        copied = scattered(steps.weights, memory.source, self.target_vocabulary)
        return mixture(scores, widened(gate), copied)


def mixture(scores: jax.Array, gate: jax.Array, copied: jax.Array) -> jax.Array:
    """Computes log (g softmax(scores) + (1 - g) copied) [...,V], g = sigmoid(gate), from scores and
    copying probabilities [...,V] and a gate [...,1].

    Where `copied` is 0 the slope in it is also (1 - g) / P, which weights that choose one word
    need; it is held below e^80.
    """
    generated = jax.nn.log_softmax(scores) + jax.nn.log_sigmoid(gate)
    of_copying = jax.nn.log_sigmoid(-gate)
    is_copied = copied > 0.0  # elsewhere the logarithm would be of 0, and its slope not finite
    mixed = jnp.logaddexp(generated, jnp.log(jnp.where(is_copied, copied, 1.0)) + of_copying)
    slope = jnp.exp(jnp.minimum(of_copying - generated, 80.0))
    return jnp.where(is_copied, mixed, generated + copied * slope)


def scattered(weights: jax.Array, source: jax.Array, vocabulary: int) -> jax.Array:
    """Adds up weights [B,T,S] of the words of a source [B,S] by word: [B,T,V], V = `vocabulary`.
    Ids that no word has weight on get exactly 0.
    """
    rows, steps, _ = weights.shape
    empty = jnp.zeros((rows, vocabulary, steps), weights.dtype)
    return empty.at[jnp.arange(rows)[:, None], source].add(weights.swapaxes(1, 2)).swapaxes(1, 2)
