"""The N-gram RNN (Daniluk et al. 2017): no attention; the output is cut into parts, each of which
predicts a step later than the last.

    [h^1_t ; ... ; h^{N-1}_t] = output of the top of the LSTM layers after x_1, ..., x_t             parts of width k
    h*_t     = tanh([h^1_t ; h^2_{t-1} ; ... ; h^{N-1}_{t-N+2}] W_N)                                  parts before the text are zeros
    logits_t = h*_t W_o + b                                                                           of the word after x_t

N = 4 takes three parts, those of the present output and of the two before it; N = 2 is an LSTM
language model with one more layer.

Source: M. Daniluk, T. Rocktäschel, J. Welbl, S. Riedel, "Frustratingly Short Attention Spans in
Neural Language Modeling", ICLR 2017 (arXiv 1702.04521), section 2.4. Beyond the paper: several
layers, dropout.

Axis letters: B batch, T time, V vocabulary, E embedding, k width of a part and of h*, N order.
"""

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.layers.dense import Dense
from attnlab.layers.history import after, latest
from attnlab.layers.initial import Initial
from attnlab.layers.lstm import LSTMLayer
from attnlab.layers.readers import States
from attnlab.systems.recurrent.lstm_lm import StackedReader


@flax.struct.dataclass
class Past:
    """The state of every layer, and of the parts i = 2..N-1 what is still to be used: the last i -
    1 of them, [B,i-1,k].
    """

    layers: States
    parts: tuple[jax.Array, ...]


class NgramRNN(StackedReader, kw_only=True):
    """N-gram RNN (Daniluk et al. 2017): the LSTM's last N - 1 outputs predict together, each with
    another part.

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

    def start(self, rows: int, room: int) -> Past:
        """See `LanguageModel.start`."""
        none = tuple(jnp.zeros((rows, number, self.width)) for number in range(1, self.order - 1))
        return Past(self.no_states(rows, (self.order - 1) * self.width, LSTMLayer), none)

    def read(self, state: Past, tokens: jax.Array) -> tuple[jax.Array, Past]:
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
        return self.out(self.drop(star)), Past(layers, windows)
