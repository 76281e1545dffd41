"""RNNsearch (Bahdanau, Cho, Bengio 2015): a recurrent decoder that attends to the source at every
step.

Encoder: ann_j = [forward GRU_j ; backward GRU_j]. Decoder, for i = 1..T:

    s_0      = tanh(backward_1 W_s)
    c_i      = attention(s_{i-1}, ann)                                 any registered mechanism; additive in the paper
    s_i      = GRU(s_{i-1}, y_{i-1} W + c_i C)
    t_i      = maxout_2(s_i U_o + y_{i-1} V_o + c_i C_o)               largest of each pair of units
    logits_i = t_i W_o

Source: D. Bahdanau, K. Cho, Y. Bengio, "Neural Machine Translation by Jointly Learning to Align and
Translate", ICLR 2015 (arXiv 1409.0473), sections 3 and A.1-A.2. `readout` settles the paper's own
inconsistency about which state the output sees, and when the state reads a word: by the formulas
above the attention for word i does not know word i-1, in the authors' released code it does. Beyond
the paper: dropout, and a decoder state whose width may differ from the encoder's. Its weights start
as in the paper with normal=0.01: N(0, 0.01^2), recurrent ones orthogonal, biases at zero, and by
the score "additive" itself the alignment model N(0, 0.001^2) and v at zero, so that attention
starts uniform. With normal=0 Glorot uniform takes the first one's place. Later code has two updates
a word, with the look between them: `cgru.py`.

Axis letters: B batch, S source length, T target length, V vocabulary, E embedding, H encoder width,
G decoder width.
"""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.config.registry import Part, kind, made
from attnlab.layers import CELLS
from attnlab.layers.dense import Dense
from attnlab.layers.readers import reader
from attnlab.systems.recurrent.writer import Decoding, DeepWriter, Encoded


class RNNsearch(DeepWriter, kw_only=True):
    """RNNsearch (Bahdanau et al. 2015): GRU encoder-decoder that attends to the source before every
    word. The fields not named here are those of `DeepWriter`.

    Attributes:
      attention: factory of the mechanism; called with the width of the annotations, 2H.
      encoder: H, the width of the encoder's state in each direction; the attention sees both, 2H.
      maxout: l, the width of the layer before the output, which takes the larger number of each of
          l pairs.
      readout: which state the output layer sees: "current" s_i (the paper's main text), "previous"
        s_{i-1} (its appendix, to the letter), or "released" (the authors' code): s_{i-1} too, but a
        state that has read y_{i-1}, for there the update comes last, s_i = GRU(s_{i-1}, y_i W + c_i
        C), so that attention knows the word before the one it looks for.
      cell: the recurrent layers: "gru" (the paper's), "lstm" or "tanh".
      directions: 2 for an encoder that reads from both ends; 1 for one of width 2H that reads from
          the left, whose last state then makes s_0.
      dropout: rate on the embeddings, the annotations and the maxout layer; the paper has none.

    Card: Bahdanau, Cho, Bengio, Neural Machine Translation by Jointly Learning to Align and
    Translate, ICLR 2015.
    """

    attention: Callable[..., Attention]
    encoder: int = 64
    maxout: int = 64
    readout: Literal["current", "previous", "released"] = "current"
    cell: Part = "gru"
    directions: Literal[1, 2] = 2

    parts = {"attention": MECHANISMS, "cell": CELLS}
    needs = {"attention": Need(role="cross", stepwise=True, history=True)}

    def setup(self) -> None:
        """Creates embeddings, the encoder (bidirectional, or one layer of twice the width), the
        attention, the decoder's cell and the maxout layers before the output.
        """
        initial, dense = self.add_deep_layers(2 * self.maxout)
        layer = made(CELLS, self.cell)
        number = kind(layer).gates
        self.reader = reader(self.directions, self.encoder, initial, layer)
        self.first_state = dense(self.decoder, use_bias=False)
        self.search = self.attention(width=2 * self.encoder, name="attention")
        self.of_context = Dense(
            number * self.decoder, use_bias=False, kernel_init=initial.kernel(number)
        )
        of_decoder = layer(width=self.decoder, initial=initial, parent=None)
        self.of_word = of_decoder.make_inputs()
        self.unit = of_decoder.make_cell().clone(name="cell", parent=self)

    def encode(self, source: jax.Array) -> Encoded:
        """Encodes source ids [B,S] to an `Encoded`: the attention's memory of the annotations, and
        the decoder's first state, made of the last state of the backward direction (for
        `directions` 1, of the only one). See `Seq2Seq.encode`.
        """
        valid = self.real(source)
        annotations, end = self.reader(self.drop(self.embed_source(source)), valid)  # [B,S,2H]
        end = end[1] if self.directions == 2 else end  # where the backward direction ends
        h = jnp.tanh(self.first_state(end.h))
        zeros = kind(made(CELLS, self.cell)).State.zeros(len(source), self.decoder, h.dtype)
        first = zeros.replace(h=h)
        return Encoded(self.search.remember(self.drop(annotations), valid), first)

    def start(self, memory: Encoded, length: int) -> Decoding:
        """See `Seq2Seq.start`."""
        h = memory.first.h
        return self.begun(memory, context=jnp.zeros((len(h), 2 * self.encoder), h.dtype))

    def transition(
        self, state: Decoding, word: jax.Array, memory: Encoded
    ) -> tuple[Decoding, tuple[jax.Array, jax.Array]]:
        """Computes one step of attention and cell, in the order that `readout` says, from the
        decoding `state`, `word`, the word's part of the gates, and the encoded source `memory`;
        returns the next state, and the pair of the h and the context c_i that the output layer
        reads. See `RecurrentWriter.transition`; `word` [B,3G], of a GRU, is y_{i-1} W.
        """
        s = state.state
        if self.readout == "released":
            # Update with the last context (there is none before the first word), then Look
            begun = jnp.reshape(state.fed > 0, (-1, 1))
            updated = self.unit(s, word + self.of_context(state.context))
            s = jax.tree.map(lambda new, old: jnp.where(begun, new, old), updated, s)
        context, looks = self.look(s.h, memory, state)
        following = s
        if self.readout != "released":
            following = self.unit(s, word + self.of_context(context))
        output = following if self.readout == "current" else s
        return Decoding(state.fed + 1, following, context, looks), (output.h, context)

    def generate(
        self, words: jax.Array, steps: tuple[jax.Array, jax.Array], memory: Encoded
    ) -> jax.Array:
        """See `RecurrentWriter.generate`: the deep output of states [B,T,G] and contexts [B,T,2H]."""
        states, contexts = steps
        of_contexts = self.out_context(contexts)
        return self.maxout_logits(self.deep_units(states, words, of_contexts))
