"""RCTM I (Kalchbrenner, Blunsom 2013): a convolutional sentence model, whose one vector biases
every step of a recurrent language model.

Sentence model: convolutions of windows w = 2, 3, ..., r, r = ceil(sqrt(2 N)), every channel with
weights of its own, until one column is left of the embeddings x_1..x_l:

    M_a  = x_a                                                        a = 1..l
    M_a  = sigmoid(sum_{j<w} K^w_j * M_{a+j})                         a = 1..l-w+1, for each w while that many columns are left
    v    = sigmoid(sum_{j<l} L^l_j * M_{1+j})                         of the l columns that remain; v = M_1 if it is one

Decoder, for t = 1..T, h_0 = 0:

    h_t      = sigmoid(h_{t-1} R + y_{t-1} I + v S)
    logits_t = h_t O

Nothing is attended to, and nothing else of the source reaches the target: the first of the
end-to-end translation models.

Source: N. Kalchbrenner, P. Blunsom, "Recurrent Continuous Translation Models", EMNLP 2013. The
exact rule for the last window and the squashing between the levels are ours, the paper's were not
at hand; so are the biases of I and O, dropout, a softmax over all words (theirs, as others report
it, not checked: over classes of words first) and the start: R orthogonal times 4 and wide windows,
so that sigmoids pass on what they get, embeddings N(0, 0.25^2), the rest Glorot uniform. A source
of more than r (r + 1) / 2 words goes through the widest window until r columns are left. RCTM II,
which unfolds the vector along the target, is not here.

Axis letters: B batch, S source length, T target length, V vocabulary, q width.
"""

import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.layers.dense import Dense
from attnlab.layers.initial import Initial
from attnlab.systems.protocol import Seq2Seq
from attnlab.systems.recurrent.writer import RecurrentWriter

# a sigmoid's slope at 0 is 1/4; windows start at twice that, as sigmoid after sigmoid levels out
# what it gets
STEEP = 4.0


class SentenceModel(nn.Module):
    """Columns [B,S,q] to one [B,q], zero for a sentence of no words.

    Attributes:
      width: q.
      widest: r, the widest window.
    """

    width: int
    widest: int

    def setup(self) -> None:
        """Creates the learned windows [size,q] of the convolutions, one for each size from 2 to
        `widest` columns, and as many for the last convolution, which joins all remaining columns.
        """

        def window(kind: str, size: int) -> jax.Array:
            return self.param(
                f"{kind}_{size}", nn.initializers.normal(2 * STEEP * size**-0.5), (size, self.width)
            )

        self.windows = [window("window", size) for size in range(2, self.widest + 1)]
        self.tops = [window("top", size) for size in range(2, self.widest + 1)]

    def __call__(self, columns: jax.Array, valid: jax.Array) -> jax.Array:
        """Computes a vector [B,q] of each sentence, columns [B,S,q] with `valid` [B,S], by
        convolutions until one column is left; zero for a sentence without words.
        """
        counts = valid.sum(axis=1)
        longest = columns.shape[1]
        for window in self.windows:
            columns, counts = convolve(columns, counts, window, counts >= len(window))
            longest -= (len(window) - 1) * (longest >= len(window))
        while longest > self.widest:
            columns, counts = convolve(columns, counts, self.windows[-1], counts > self.widest)
            longest -= self.widest - 1
        columns = jnp.pad(columns, ((0, 0), (0, max(0, self.widest - columns.shape[1])), (0, 0)))[
            :, : self.widest
        ]
        kernels = jnp.stack(
            [jnp.pad(top, ((0, self.widest - len(top)), (0, 0))) for top in self.tops]
        )  # [r-1,r,q]
        chosen = kernels[jnp.clip(counts - 2, 0, self.widest - 2)]
        joined = jax.nn.sigmoid((chosen * columns).sum(axis=1))
        return jnp.where(
            (counts > 1)[:, None], joined, jnp.where((counts == 1)[:, None], columns[:, 0], 0)
        )


def convolve(
    columns: jax.Array, counts: jax.Array, window: jax.Array, active: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Convolves columns [B,S,q] with `window` [w,q], then sigmoid, in the rows where `active` [B]
    is True; returns the columns [B,S,q] and how many of them, from the first, are valid now in each
    row (`counts` [B] before); both unchanged if w exceeds S.
    """
    size, length = len(window), columns.shape[1]
    if size > length:
        return columns, counts
    summed = sum(window[j] * columns[:, j : length - size + 1 + j] for j in range(size))
    convolved = jnp.pad(jax.nn.sigmoid(summed), ((0, 0), (0, size - 1), (0, 0)))
    return jnp.where(active[:, None, None], convolved, columns), jnp.where(
        active, counts - size + 1, counts
    )


class RCTM(RecurrentWriter, Seq2Seq):
    """RCTM I (Kalchbrenner, Blunsom 2013): a convolutional sentence model, a recurrent language
    model.

    Attributes:
      width: q, of the embeddings, the sentence and the state.
      longest: N, words of the longest sentence that the windows are laid out for; longer ones than
        the data has would only be windows that never act.
      dropout: rate on the embeddings and the state that the output sees; the paper has none.

    Card: Kalchbrenner, Blunsom, Recurrent Continuous Translation Models, EMNLP 2013.
    """

    width: int = 128
    longest: int = 32
    dropout: float = 0.0

    lengths = {"longest": "within"}

    def setup(self) -> None:
        """Creates embeddings, the sentence model, the recurrent matrix of the decoder and the
        output layer.
        """
        small, steep = nn.initializers.normal(0.25), nn.initializers.orthogonal(STEEP)
        table = self.add_word_layers(Initial(), small, self.width, self.dropout)
        self.embed_source = table(self.source_vocabulary)
        self.sentence = SentenceModel(self.width, max(2, math.ceil(math.sqrt(2 * self.longest))))
        self.of_sentence = Dense(self.width, use_bias=False)
        self.of_word = Dense(self.width)
        self.past = self.param("past", steep, (self.width, self.width))

    def encode(self, source: jax.Array) -> jax.Array:
        """See `Seq2Seq.encode`; the memory is what the sentence gives to every step, v S [B,q]."""
        words = self.drop(self.embed_source(source))
        return self.of_sentence(self.sentence(words, self.real(source)))

    def decode(self, memory: jax.Array, target_in: jax.Array) -> jax.Array:
        """Computes the logits [B,T,V] of given targets [B,T] from `memory` [B,q], the projected
        vectors of the sources, which every step adds; the states h = sigmoid(h R + inputs) are
        computed step by step, inputs and outputs for all steps at once. See `Seq2Seq.decode`.
        """
        inputs = self.of_word(self.embedded(target_in)) + memory[:, None]  # [B,T,q]
        past = jnp.asarray(self.past)

        def step(state: jax.Array, contribution: jax.Array) -> tuple[jax.Array, jax.Array]:
            state = jax.nn.sigmoid(state @ past + contribution)
            return state, state

        start = self.start(memory, target_in.shape[1])
        states = jax.lax.scan(step, start, inputs.swapaxes(0, 1))[1]
        return self.out(self.drop(states.swapaxes(0, 1)))

    def start(self, memory: jax.Array, length: int) -> jax.Array:
        """See `Seq2Seq.start`; the state is h [B,q]."""
        return jnp.zeros_like(memory)

    def step(
        self, state: jax.Array, memory: jax.Array, tokens: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """See `Seq2Seq.step`."""
        before = state @ jnp.asarray(self.past)
        state = jax.nn.sigmoid(before + self.of_word(self.embed_target(tokens)) + memory)
        return self.out(state), state
