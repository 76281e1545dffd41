"""The RNN Encoder-Decoder (Cho et al. 2014): the whole source in one vector, which the decoder gets
at every step.

Encoder: h_j = GRU(h_{j-1}, x_j W), from left to right. Then, for i = 1..T:

    c        = tanh(h_S V_c)                                  the fixed vector; h_S is the state at the last real token
    s_0      = tanh(c V_p)
    s_i      = GRU(s_{i-1}, y_{i-1} W, c C)                   c enters both gates and, through the reset gate, the candidate
    t_i      = maxout_2(s_i O_h + y_{i-1} O_y + c O_c)        largest of each pair of units
    logits_i = t_i G

It has no attention: c takes the place of the context that RNNsearch (`rnnsearch.py`) computes for
every word. The rest of the two is equal.

Source: K. Cho, B. van Merrienboer, C. Gulcehre, D. Bahdanau, F. Bougares, H. Schwenk, Y. Bengio,
"Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
EMNLP 2014 (arXiv 1406.1078), section 2 and appendix A.1. Beyond the paper: dropout, biases on the
words' contributions and the output, encoder and decoder of different widths, and G of full rank
(the paper: the product of two matrices of the embedding's width). Its weights start as in the paper
with normal=0.01: N(0, 0.01^2), recurrent ones orthogonal, biases at zero; with normal=0 Glorot
uniform takes the first one's place.

Axis letters: B batch, S source length, T target length, V vocabulary, E embedding, H encoder width,
G decoder width.
"""

import functools

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.layers.dense import Dense
from attnlab.layers.recurrent import GATES, ContextGRUCell, GRULayer
from attnlab.systems.recurrent.writer import DeepWriter


@flax.struct.dataclass
class Encoded:
    """The first state s_0 [B,G], and what the fixed vector gives to every step: c C [B,3G] and c
    O_c [B,2l].
    """

    first: jax.Array
    to_cell: jax.Array
    to_output: jax.Array


class RNNEncoderDecoder(DeepWriter, kw_only=True):
    """RNN Encoder-Decoder (Cho et al. 2014): GRUs on both sides, and a vector of fixed size between
    them. The fields not named here are those of `DeepWriter`.

    Attributes:
      encoder: H, the width of the encoder's state and of c, the vector of the source.
      maxout: l, the width of the layer before the output, which takes the larger number of each of
          l pairs.
      normal: weights but the recurrent ones start N(0, normal^2), the paper's being 0.01; 0 for
        Glorot's initializer.
      dropout: rate on the embeddings, c and the maxout layer; the paper has none.

    Card: Cho et al., Learning Phrase Representations using RNN Encoder-Decoder, EMNLP 2014.
    """

    encoder: int = 128
    maxout: int = 64

    def setup(self) -> None:
        """Creates embeddings, the encoder's GRU, the layers of the fixed vector, the decoder's cell
        and the maxout layers before the output.
        """
        initial, dense = self.add_deep_layers(2 * self.maxout)
        gates = functools.partial(Dense, GATES * self.decoder, kernel_init=initial.kernel(GATES))
        self.reader = GRULayer(self.encoder, initial)
        self.summary = dense(self.encoder, use_bias=False)
        self.first_state = dense(self.decoder, use_bias=False)
        self.of_word, self.of_context = gates(), gates(use_bias=False)
        self.cell = ContextGRUCell(self.decoder)

    def encode(self, source: jax.Array) -> Encoded:
        """Encodes source ids [B,S] to a fixed vector c made of the last state; returns an `Encoded`
        of the decoder's first state and what c adds to the gates and to the output of every step.
        See `Seq2Seq.encode`.
        """
        states = self.reader(self.drop(self.embed_source(source)), self.real(source))
        last = states[:, -1]  # the state is copied through padding
        c = self.drop(jnp.tanh(self.summary(last)))
        return Encoded(jnp.tanh(self.first_state(c)), self.of_context(c), self.out_context(c))

    def start(self, memory: Encoded, length: int) -> jax.Array:
        """See `Seq2Seq.start`; the state is s [B,G]."""
        return memory.first

    def transition(
        self, state: jax.Array, word: jax.Array, memory: Encoded
    ) -> tuple[jax.Array, jax.Array]:
        """See `RecurrentWriter.transition`; the output is s_i."""
        state = self.cell(state, word, memory.to_cell)
        return state, state

    def generate(self, words: jax.Array, steps: jax.Array, memory: Encoded) -> jax.Array:
        """See `RecurrentWriter.generate`: the deep output of states [B,T,G]."""
        return self.maxout_logits(self.deep_units(steps, words, memory.to_output[:, None]))
