"""Sequence to Sequence (Sutskever, Vinyals, Le 2014): deep LSTMs, of which the second starts in the
state where the first ended.

For the layers l = 1..L and the words x_S, ..., x_1 of the source, from the last to the first
(`order`):

    (c, h)^l   = LSTM^l of the words below                        words, for l = 1, or the outputs of layer l - 1
    (c, h)^l_0 = where the source's layer l ended                 the first state of the target's layer l, and all it knows of the source
    logits_t   = h^L_t W_o + b                                    after reading y_0 = BOS, ..., y_{t-1}

It has no attention. Reading the source backwards brings its first words near to the first words of
the target.

Source: I. Sutskever, O. Vinyals, Q. V. Le, "Sequence to Sequence Learning with Neural Networks",
NIPS 2014 (arXiv 1409.3215), sections 2 and 3. Its ensembles are in `ensemble.py`. Every real token
is read backwards, the end sign too, which so comes first; padding stays last. Beyond the paper:
dropout, other initializers, and a forget gate that may start open. The output's bias
starts at zero.

Axis letters: B batch, S source length, T target length, V vocabulary, E embedding, H width of a
layer, L layers.
"""

import functools
from typing import Literal

import jax

from attnlab.config.registry import Part, made
from attnlab.layers import CELLS
from attnlab.layers.initial import Initial
from attnlab.layers.readers import LSTMStack, States
from attnlab.systems.protocol import Seq2Seq
from attnlab.systems.recurrent.writer import RecurrentWriter


class StackedSides(RecurrentWriter, Seq2Seq):
    """Base of the systems with stacked LSTMs on both sides; not a system by itself.

    Attributes:
      embedding: E, both sides.
      width: H of every layer.
      layers: L, of each side.
      order: how the source is read, from its last word to its first ("reversed", the paper's) or as
        it stands ("plain").
      cell: the recurrent layers: "lstm" (the paper's), "gru" or "tanh".
      directions: 1, or 2 for an encoder whose every layer reads both ways, half of H from each end
        (then `order` says nothing more).
      uniform: weights start uniform in [-uniform, uniform], the paper's being 0.08; 0 for the
        initializers of `Initial`.
      forget: what the bias of every forget gate starts with besides; the paper speaks of none.
      dropout: rate on the input of every layer and on what the output layer sees; the paper has
        none.
    """

    embedding: int = 64
    width: int = 128
    layers: int = 2
    order: Literal["reversed", "plain"] = "reversed"
    cell: Part = "lstm"
    directions: Literal[1, 2] = 1
    uniform: float = 0.0
    forget: float = 1.0
    dropout: float = 0.0

    parts = {"cell": CELLS}

    def setup(self) -> None:
        """Creates the embeddings, the LSTM stacks that read and write, and the output layer."""
        initial = Initial(uniform=self.uniform, forget=self.forget)
        table = self.add_word_layers(initial, initial.word(1.0), self.embedding, self.dropout)
        self.embed_source = table(self.source_vocabulary)
        sizes, kind = (self.width, self.layers, self.dropout), made(CELLS, self.cell)
        stack = functools.partial(LSTMStack, *sizes, initial=initial, kind=kind)
        self.reader, self.writer = stack(directions=self.directions), stack()


class SequenceToSequence(StackedSides):
    """Sequence to Sequence (Sutskever et al. 2014): stacked LSTMs on both sides, the last states of
    one being the first of the other. The fields are those of `StackedSides`.

    Card: Sutskever, Vinyals, Le, Sequence to Sequence Learning with Neural Networks, NIPS 2014.
    """

    def encode(self, source: jax.Array) -> States:
        """See `Seq2Seq.encode`; the memory is the last state of every layer."""
        return self.reader(
            self.embed_source(source), self.real(source), reverse=self.order == "reversed"
        )[1]

    def decode(self, memory: States, target_in: jax.Array) -> jax.Array:
        """See `Seq2Seq.decode`."""
        return self.out(self.drop(self.writer(self.embed_target(target_in), start=memory)[0]))

    def start(self, memory: States, length: int) -> States:
        """See `Seq2Seq.start`; the state is that of every layer."""
        return memory

    def step(self, state: States, memory: States, tokens: jax.Array) -> tuple[jax.Array, States]:
        """See `Seq2Seq.step`."""
        top, state = self.writer.advance(state, self.writer.contribute(self.embed_target(tokens)))
        return self.out(self.drop(top)), state
