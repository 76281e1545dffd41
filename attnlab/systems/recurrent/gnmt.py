"""GNMT (Wu et al. 2016): deep residual LSTMs, and attention from the lowest layer of the decoder,
whose context all layers get.

Encoder, of Le layers: ann = x^Le.  Decoder, of Ld layers: for t = 1..T,

    x^1      = [forward LSTM ; backward LSTM] of the words          the one layer that reads both ways; 2H wide
    x^l      = LSTM^l(x^{l-1}), from the third on plus x^{l-1}      l = 2..Le      (or without: `residual`)
    a_t      = attention(s^1_{t-1}, ann)                            any registered mechanism; additive in the paper
    s^1_t    = LSTM^1([y_{t-1} ; a_t])
    s^l_t    = LSTM^l([s^{l-1}_t ; a_t]), from the third on plus s^{l-1}_t      l = 2..Ld
    logits_t = s^Ld_t W_o + b

That is `query` "previous": the query is the output of the lowest layer one step before. So each
layer above depends only on the layer below, and runs over all steps at once. With "current", as in
later open implementations, s^1_t = LSTM^1([y_{t-1} ; a_{t-1}]) with a_0 = 0, and a_t =
attention(s^1_t, ann) goes to the layers above.

Source: Y. Wu, M. Schuster, Z. Chen, Q. V. Le, M. Norouzi, ..., J. Dean, "Google's Neural Machine
Translation System: Bridging the Gap between Human and Machine Translation", 2016 (arXiv
1609.08144), section 3. Its length and coverage penalties are decoding.length_penalty and
decoding.coverage of beam search. How the decoder starts is told by `first`; which of its values is
the paper's was not checked. Our own choice: forget gates start open, with 1 added to their biases.
Not here: its refinement by reinforcement learning, and its quantised arithmetic.

Axis letters: B batch, S source length, T target length, V vocabulary, E embedding, H width of a
layer, M width of an annotation.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.config.registry import Part, kind, made
from attnlab.errors import UserError
from attnlab.layers import CELLS
from attnlab.layers.dense import Dense
from attnlab.layers.initial import Initial
from attnlab.layers.readers import LSTMStack, States, reader
from attnlab.systems.protocol import Seq2Seq
from attnlab.systems.recurrent.writer import Decoding, Encoded, RecurrentWriter

RESIDUAL = 3  # the first layer whose input is added to its output


class GNMT(RecurrentWriter, Seq2Seq):
    """GNMT (Wu et al. 2016): stacked LSTMs with sums past the layers from the third on, one
    attention for all layers of the decoder.

    Attributes:
      attention: factory of the mechanism; called with the width of the annotations, H, or 2H where
        the encoder has one layer.
      embedding: E, both sides.
      width: H of every layer and of each direction of the encoder's lowest.
      encoder_layers: Le.
      decoder_layers: Ld.
      query: whether the query is the output of the lowest layer one step before ("previous", the
        paper's) or in this step ("current").
      first: the decoder's first state: "zeros", or "encoder": layer l starts where layer l of the
        encoder ended, the lowest where the backward direction did.
      cell: the recurrent layers: "lstm" (the paper's), "gru" or "tanh".
      directions: 2, or 1 for a lowest layer of the encoder of width 2H that reads from the left.
      residual: whether the input of a layer is added to its output, from the third layer on.
      uniform: weights start uniform in [-uniform, uniform]; 0 for the initializers of `Initial`.
        The mechanism's own start as it says.
      dropout: rate on the input of every layer.

    Card: Wu et al., Google's Neural Machine Translation System, 2016 (arXiv 1609.08144).
    """

    attention: Callable[..., Attention]
    embedding: int = 64
    width: int = 64
    encoder_layers: int = 4
    decoder_layers: int = 4
    query: Literal["previous", "current"] = "previous"
    first: Literal["zeros", "encoder"] = "zeros"
    cell: Part = "lstm"
    directions: Literal[1, 2] = 2
    residual: bool = True
    uniform: float = 0.0
    dropout: float = 0.0

    parts = {"attention": MECHANISMS, "cell": CELLS}
    needs = {"attention": Need(role="cross", stepwise=True, history=True)}

    def setup(self) -> None:
        """Creates embeddings, the layers of both sides and the attention; raises `UserError` if
        `first` is "encoder" with unequal numbers of layers or one direction.
        """
        if self.first == "encoder" and self.encoder_layers != self.decoder_layers:
            raise UserError(
                "system.first='encoder' hands states from layer to layer, but"
                f" encoder_layers={self.encoder_layers} and decoder_layers={self.decoder_layers};"
                " make them equal or choose 'zeros'"
            )
        if self.first == "encoder" and self.directions == 1:
            raise UserError(
                "system.first='encoder' starts where the backward direction ended, and"
                " directions=1 has none; set directions=2 or choose 'zeros'"
            )
        initial, layer = Initial(uniform=self.uniform), made(CELLS, self.cell)
        gates = kind(layer).gates
        table = self.add_word_layers(initial, initial.word(1.0), self.embedding, self.dropout)
        self.embed_source = table(self.source_vocabulary)
        self.both_ways = reader(self.directions, self.width, initial, layer)
        sizes = self.width, self.encoder_layers - 1, self.dropout
        self.reader = LSTMStack(*sizes, RESIDUAL - 1 if self.residual else 0, initial, layer)
        wide = self.width if self.encoder_layers > 1 else 2 * self.width
        self.search = self.attention(width=wide, name="attention")
        self.lowest = layer(width=self.width, initial=initial)
        self.of_context = Dense(
            gates * self.width, use_bias=False, kernel_init=initial.kernel(gates)
        )
        self.above = [
            layer(width=self.width, initial=initial) for _ in range(self.decoder_layers - 1)
        ]

    def encode(self, source: jax.Array) -> Encoded:
        """Encodes source ids [B,S] to an `Encoded`: the attention's memory of the top layer's
        outputs, and a tuple of the decoder's first states, the encoder's last ones or zeros. See
        `Seq2Seq.encode`.
        """
        valid = self.real(source)
        words, ends = self.both_ways(self.drop(self.embed_source(source)), valid)
        annotations, last = self.reader(words, valid)
        zeros = kind(made(CELLS, self.cell)).State.zeros
        nothing = zeros(len(source), self.width, annotations.dtype)
        first = (ends[1], *last) if self.first == "encoder" else (nothing,) * self.decoder_layers
        return Encoded(self.search.remember(annotations, valid), first)

    def inputs(self, words: jax.Array) -> jax.Array:
        """See `RecurrentWriter.inputs`: [B,T,4H], of an LSTM, for the gates of the lowest layer."""
        return self.lowest.of_input(words)

    def start(self, memory: Encoded, length: int) -> tuple[Decoding, States]:
        """Returns the decoding state before the first token: that of the lowest layer, with a
        context of zeros, and the states of the layers above it. See `Seq2Seq.start`.
        """
        lowest, *above = memory.first
        wide = self.width if self.encoder_layers > 1 else 2 * self.width
        context = jnp.zeros((len(lowest.h), wide), lowest.h.dtype)
        return self.begun(memory, lowest, context), tuple(above)

    def transition(
        self, state: Decoding, word: jax.Array, memory: Encoded
    ) -> tuple[Decoding, tuple[jax.Array, jax.Array]]:
        """Computes one step of the lowest layer and of the attention from the decoding `state`,
        `word`, the word's part of the gates ([B,4H] of an LSTM), and the encoded source `memory`;
        returns the next `Decoding`, and the pair of the layer's h and the context a, inputs of the
        layers above. See `RecurrentWriter.transition`.
        """
        if self.query == "previous":
            a, looks = self.look(state.state.h, memory, state)
            following = self.lowest.cell(state.state, word + self.of_context(self.drop(a)))
        else:
            of_last = self.of_context(self.drop(state.context))
            following = self.lowest.cell(state.state, word + of_last)
            a, looks = self.look(following.h, memory, state)
        return Decoding(state.fed + 1, following, a, looks), (following.h, a)

    def decode(self, memory: Encoded, target_in: jax.Array) -> jax.Array:
        """Computes the logits [B,T,V] of given targets [B,T] with the encoded source `memory`: the
        lowest layer and the attention step by step, the layers above over all steps at once. See
        `Seq2Seq.decode`.
        """
        first, _ = self.start(memory, target_in.shape[1])
        words = self.inputs(self.embedded(target_in))
        x, contexts = self.all_steps(first, words, memory)
        for number, layer in enumerate(self.above, start=2):
            inputs = self.drop(jnp.concatenate([x, contexts], axis=-1))
            y, _ = layer(inputs, start=memory.first[number - 1])
            x = self._summed(number, x, y)
        return self.out(x)

    def step(
        self, state: tuple[Decoding, States], memory: Encoded, tokens: jax.Array
    ) -> tuple[jax.Array, tuple[Decoding, States]]:
        """Feeds tokens [B] through all layers, with the encoded source `memory`; returns the logits
        [B,V] of the next tokens and the next state, a pair for the lowest layer and those above.
        See `Seq2Seq.step`.
        """
        lowest, states = state
        lowest, (x, a) = self.transition(lowest, self.inputs(self.embedded(tokens)), memory)
        above = []
        for number, layer in enumerate(self.above, start=2):
            inputs = self.drop(jnp.concatenate([x, a], axis=-1))
            above.append(layer.step(states[number - 2], inputs))
            x = self._summed(number, x, above[-1].h)
        return self.out(x), (lowest, tuple(above))

    def _summed(self, number: int, x: jax.Array, y: jax.Array) -> jax.Array:
        """The input of the layer above layer `number` (from 1): its output y, plus its input x from
        the third layer on if there are residual sums.
        """
        return y + x if self.residual and number >= RESIDUAL else y
