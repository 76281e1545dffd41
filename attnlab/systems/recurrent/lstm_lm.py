"""The LSTM language model (Zaremba, Sutskever, Vinyals 2014): L layers with dropout between them;
the baseline of the other language models.

    h_t      = output of the top of L LSTM layers after x_1, ..., x_t
    logits_t = dropout(h_t) W_o + b                                        of the word after x_t; W_o may be the embedding itself

Source: W. Zaremba, I. Sutskever, O. Vinyals, "Recurrent Neural Network Regularization", 2014 (arXiv
1409.2329); one matrix for the words that are read and those that are predicted: O. Press, L. Wolf,
"Using the Output Embedding to Improve Language Models", EACL 2017. Beyond the paper: other
initializers for the first weights, and a forget gate that starts open.

Axis letters: B batch, T time, V vocabulary, E embedding, H width of a layer, L layers.
"""

from typing import Any, Literal

import flax.linen as nn
import jax

from attnlab.config.registry import Part, kind, made
from attnlab.errors import UserError
from attnlab.layers import CELLS
from attnlab.layers.dense import Dense, Dropout, SharedOutput
from attnlab.layers.initial import Embed, Initial
from attnlab.layers.readers import Layer, LSTMStack, States
from attnlab.systems.protocol import LanguageModel


class StackedReader(LanguageModel, kw_only=True):
    """Base of the language models over stacked recurrent layers. Not a system by itself.

    Attributes:
      layers: how many recurrent layers there are.
      uniform: weights start uniform in [-uniform, uniform]; 0 for the initializers of `Initial`.
      dropout: share of the input of every layer and of what the output layer sees that training
        sets to 0.
    """

    layers: int = 1
    uniform: float = 0.0
    dropout: float = 0.0

    @nn.nowrap
    def add_reader(self, initial: Initial, start: Any, width: int, layer: Layer) -> None:
        """Adds, in `setup`, the embedding, dropout, and the layers, of this width and kind."""
        self.embed = Embed(self.vocabulary, self.embedding, embedding_init=start)  # type: ignore[attr-defined]
        self.reader = LSTMStack(width, self.layers, self.dropout, initial=initial, kind=layer)
        self.drop = Dropout(self.dropout)

    @nn.nowrap
    def no_states(self, rows: int, width: int, layer: Layer) -> States:
        """The states [rows,width] of the layers before anything was read."""
        return tuple(kind(layer).State.zeros(rows, width) for _ in range(self.layers))


class LSTMLanguageModel(StackedReader, kw_only=True):
    """LSTM language model (Zaremba et al. 2014): stacked LSTMs with dropout on the inputs of
    layers, not on the recurrence.

    Attributes:
      embedding: E, the width of the embeddings of words.
      width: H, the width of the state of every LSTM layer.
      layers: L, how many LSTM layers there are.
      share: which matrices are one: "output" (the embedding and the output; needs E = H) or "none".
      cell: the recurrent layers: "lstm" (the paper's), "gru" or "tanh".
      uniform: weights start uniform in [-uniform, uniform], the paper's being 0.05 (medium) and
        0.04 (large); 0 for the initializers of `Initial`.
      dropout: rate on the input of every layer and on what the output layer sees; the paper's 0.5
        (medium), 0.65 (large).

    Card: Zaremba, Sutskever, Vinyals, Recurrent Neural Network Regularization, 2014.
    """

    embedding: int = 128
    width: int = 128
    share: Literal["none", "output"] = "none"
    cell: Part = "lstm"

    parts = {"cell": CELLS}

    def setup(self) -> None:
        """Creates the embedding, the LSTM layers and the output layer, whose matrix is the
        embedding for share "output"; raises `UserError` if the widths then differ.
        """
        if self.share == "output" and self.embedding != self.width:
            sizes = f"embedding={self.embedding} and width={self.width}"
            raise UserError(
                f"lstm_lm: share='output' needs as wide an embedding as a layer, not {sizes}; set"
                " them equal or share='none'"
            )
        initial = Initial(uniform=self.uniform)
        shared = self.share == "output"
        start = initial.embedding(self.embedding) if shared else initial.word(0.3)
        self.add_reader(initial, start, self.width, made(CELLS, self.cell))
        self.out: Any = (
            SharedOutput() if shared else Dense(self.vocabulary, kernel_init=initial.output())
        )

    def start(self, rows: int, room: int) -> States:
        """See `LanguageModel.start`; the state is that of every layer."""
        return self.no_states(rows, self.width, made(CELLS, self.cell))

    def read(self, state: States, tokens: jax.Array) -> tuple[jax.Array, States]:
        """Computes the logits [B,T,V] of the words after each of tokens [B,T], read from `state`
        on, and the tuple of all layers' states after them. See `LanguageModel.read`.
        """
        outputs, state = self.reader(self.embed(tokens), self.real(tokens), state)
        table = [self.embed.embedding] if self.share == "output" else []
        return self.out(self.drop(outputs), *table), state
