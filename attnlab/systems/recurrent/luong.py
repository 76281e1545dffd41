"""Luong attention (Luong, Pham, Manning 2015): deep LSTMs whose top state is the query, and is then
combined with the context.

Encoder: L LSTM layers over the source, ann_j the output of the top one at word j. Decoder: L layers
that start where those of the encoder ended; for t = 1..T, with y_0 = BOS and a_0 = 0:

    x_t      = [y_{t-1} ; a_{t-1}]                          input feeding; without it y_{t-1} alone
    h_t      = output of the top layer                      its input is x_t for the lowest layer
    c_t      = attention(h_t, ann)                          any registered mechanism; the paper's are all `single`, see below
    a_t      = tanh([c_t ; h_t] W_c)                        the attentional vector
    logits_t = a_t W_s + b

The paper's: scores dot, general, concat and location; alignments softmax (its "global"), local_m
and local_p. The question is the state that has just read y_{t-1}, where RNNsearch (`rnnsearch.py`)
asks with the state before.

Source: M.-T. Luong, H. Pham, C. D. Manning, "Effective Approaches to Attention-based Neural Machine
Translation", EMNLP 2015 (arXiv 1508.04025), section 3. With `order` "reversed" the encoder reads
from the last word to the first, as theirs does, but ann_j stays with word j of the source: a window
around word t lies around word t, whichever way the source was read. Otherwise than in their code:
the LSTMs and the scores of the words have biases (the latter so that it can start at how often each
word is, see `training.output_bias`), forget gates start open unless `forget` is 0, the end sign of
the source can be attended, and states are not clipped.

Axis letters: B batch, S source length, T target length, V vocabulary, E embedding, H width of a
layer, L layers.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.alignments.local import LocalM
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.attention.view import View
from attnlab.config.registry import holds, kind, made
from attnlab.errors import UserError
from attnlab.layers import CELLS
from attnlab.layers.dense import Dense
from attnlab.layers.initial import Initial
from attnlab.systems.protocol import looked
from attnlab.systems.recurrent.seq2seq import StackedSides
from attnlab.systems.recurrent.writer import Decoding, Encoded


class Luong(StackedSides, kw_only=True):
    """Luong attention (Luong et al. 2015): stacked LSTMs, attention after them, and an attentional
    vector that may be fed back. The fields not named here are those of `StackedSides`.

    Attributes:
      attention: factory of the mechanism; called with the width of the annotations, H.
      layers: L, of each side.
      feeding: whether the lowest layer of the decoder is given a_{t-1} ("input") or not ("none").
      uniform: weights start uniform in [-uniform, uniform], the paper's being 0.1; 0 for the
        initializers of `Initial`. The mechanism has its own initializers.
      dropout: rate on the input of every layer, so on a_{t-1} too; the paper's 0.2.

    Card: Luong, Pham, Manning, Effective Approaches to Attention-based Neural Machine Translation,
    EMNLP 2015.
    """

    attention: Callable[..., Attention]
    layers: int = 1
    feeding: Literal["input", "none"] = "input"

    parts = {"attention": MECHANISMS, "cell": CELLS}
    needs = {"attention": Need(role="cross", stepwise=True, history=True)}

    @classmethod
    def asks(cls, chosen: Mapping[str, Any]) -> Mapping[str, Need]:
        """Returns the class's `Need` by attention slot; raises `UserError` if the config fields
        `chosen` combine windows that move forward with the target (`local_m`) and a source that is
        read only backwards. See `System.asks`.
        """
        windows = holds(chosen.get("attention"), LocalM)
        if (
            windows
            and chosen.get("order", cls.order) == "reversed"
            and chosen.get("directions", cls.directions) == 1
        ):
            raise UserError(
                "system.attention.alignment: the windows of local_m go through the source from its"
                " first word, which system.order='reversed' reads last; set system.order='plain',"
                " or choose 'local_p'"
            )
        return cls.needs

    def setup(self) -> None:
        """Creates both LSTM stacks, the attention, the layer of the attentional vector and, for
        input feeding, its projection to the gates.
        """
        super().setup()
        initial = Initial(uniform=self.uniform, forget=self.forget)
        self.search = self.attention(width=self.width, name="attention")
        if self.feeding == "input":
            gates = kind(made(CELLS, self.cell)).gates
            self.of_last = Dense(
                gates * self.width, use_bias=False, kernel_init=initial.kernel(gates)
            )
        self.combine = Dense(self.width, use_bias=False, kernel_init=initial.kernel())

    def encode(self, source: jax.Array) -> Encoded:
        """Encodes source ids [B,S], backwards for order "reversed", to an `Encoded`: the
        attention's memory of the outputs and the last states of all layers. See `Seq2Seq.encode`.
        """
        valid = self.real(source)
        annotations, last = self.reader(
            self.embed_source(source), valid, reverse=self.order == "reversed"
        )
        return Encoded(self.search.remember(annotations, valid), last)

    def embedded(self, tokens: jax.Array) -> jax.Array:
        """See `RecurrentWriter.embedded`; what layers read is dropped by the stack."""
        words: jax.Array = self.embed_target(tokens)
        return words

    def inputs(self, words: jax.Array) -> jax.Array:
        """See `RecurrentWriter.inputs`: [B,T,4H], of an LSTM, for the gates of the lowest layer."""
        return self.writer.contribute(words)

    def decode(self, memory: Encoded, target_in: jax.Array) -> jax.Array:
        """Computes the logits [B,T,V] of given targets [B,T] with the encoded source `memory`: step
        by step with input feeding, else all steps of the LSTMs first, then all attention at once.
        See `Seq2Seq.decode`.
        """
        if self.feeding == "input":
            return super().decode(memory, target_in)
        tops, _ = self.writer(self.embed_target(target_in), start=memory.first)
        looks = self.search.initial_history(memory.attended)
        return self.out(self._attentional(tops, memory.attended, 0, looks)[0])

    def start(self, memory: Encoded, length: int) -> Decoding:
        """See `Seq2Seq.start`; the context is the attentional vector a [B,H] of the last step."""
        return self.begun(memory, context=jnp.zeros_like(memory.first[-1].h))

    def transition(
        self, state: Decoding, word: jax.Array, memory: Encoded
    ) -> tuple[Decoding, jax.Array]:
        """See `RecurrentWriter.transition`; the output is a_t."""
        fed = word + self.of_last(self.drop(state.context)) if self.feeding == "input" else word
        top, states = self.writer.advance(state.state, fed)
        a, looks = self._attentional(top[:, None], memory.attended, state.fed, state.looks)
        return Decoding(state.fed + 1, states, a[:, 0], looks), a[:, 0]

    def generate(self, words: jax.Array, steps: jax.Array, memory: Encoded) -> jax.Array:
        """See `RecurrentWriter.generate`, of attentional vectors [B,T,H]."""
        return self.out(steps)

    def _attentional(
        self, tops: jax.Array, attended: Any, fed: jax.Array | int, looks: Any
    ) -> tuple[jax.Array, Any]:
        """Computes the attentional vectors [B,t,H] of top states `tops` [B,t,H], and the history of
        looks after them.

        Args:
          tops: of the words from number `fed` on.
          attended: the attention's memory of the source.
          fed: how many words were read before.
          looks: the history of looks so far.
        """
        view = View(positions=fed)
        reading = self.search.read(tops, attended, view, history=looks)
        pairs = jnp.concatenate([looked(self, reading), tops], axis=-1)
        return jnp.tanh(self.combine(pairs)), reading.history
