"""Bottom-up and top-down attention (Anderson et al. 2018): two LSTMs, one that says where to look and
one that writes.

    h1_t, c1_t = LSTM_1(h1_{t-1}, [h2_{t-1} ; mean_i(v_i) ; E y_{t-1}])
    vhat_t     = attention(h1_t, v)                       any registered mechanism; additive in the paper
    h2_t, c2_t = LSTM_2(h2_{t-1}, [vhat_t ; h1_t])
    logits_t   = h2_t W_p + b_p

All first states are zero. The means are those of real regions. The regions v are vectors [B,L,D] from
a detector (bottom-up), or the places of the feature map of a backbone.

Source: P. Anderson et al., "Bottom-Up and Top-Down Attention for Image Captioning and Visual Question
Answering", CVPR 2018, section 3.2. Otherwise than there: captions are trained by cross-entropy
alone; the paper goes on by rewards. Weights start as in the released network with normal=0.01.

Axis letters: B batch, L regions, D their width, T target length, V vocabulary, E embedding, H width.
"""

from typing import Any

import flax.struct
import jax

from attnlab.layers.lstm import GateInputs, LSTMCell, LSTMState
from attnlab.systems.recurrent.writer import Decoding
from attnlab.systems.vision.show_attend_tell import LSTMCaptioner


@flax.struct.dataclass
class Encoded:
    """The attention's memory of the regions, and what their mean adds to the gates of LSTM_1,
    [B,4H].
    """

    attended: Any
    mean: jax.Array


class TopDown(LSTMCaptioner, kw_only=True):
    """Bottom-up and top-down attention (Anderson et al. 2018): an LSTM says where to look, another
    writes. The fields not named here are those of `LSTMCaptioner`.

    Attributes:
      dropout: rate on words and on h2_t before the output; the paper has none.

    Card: Anderson et al., Bottom-Up and Top-Down Attention, CVPR 2018.
    """

    def setup(self) -> None:
        """Creates what `Captioner.setup` does (backbone, positions; `UserError` for positions
        inside attention), word embeddings, dropout, output layer, the attention and two LSTM cells,
        one that attends and one that writes, with their input projections.
        """
        super().setup()
        initial = self.initial
        self.of_mean, self.of_writing = self.gates(), self.gates()
        self.looking_cell = LSTMCell(self.width, initial)
        self.of_context = GateInputs(self.width, initial)
        self.of_looking = self.gates()
        self.writing_cell = LSTMCell(self.width, initial)

    def encode(self, source: jax.Array, valid: jax.Array | None = None) -> Encoded:
        """See `Captioner.encode`; `UserError` if D is another."""
        v, real, mean = self.regions(source, valid)
        return Encoded(self.search.remember(v, real), self.of_mean(mean))

    def start(self, memory: Encoded, length: int) -> Decoding:
        """See `Writer.start`; the state is that of both LSTMs, the one that looks first."""
        zeros = LSTMState.zeros(len(memory.mean), self.width, memory.mean.dtype)
        return self.begun(memory, (zeros, zeros))

    def transition(
        self, state: Decoding, word: jax.Array, memory: Encoded
    ) -> tuple[Decoding, jax.Array]:
        """Computes one step from the decoding `state`, `word`, the word's part [B,4H] of the gates
        of the first LSTM, and the encoded image `memory`: first LSTM, attention by its h, second
        LSTM on the context and that h; returns the next state, and h2_t of the second LSTM for the
        output. See `RecurrentWriter.transition`; `word` is what y_{t-1} adds to the gates, with
        their bias.
        """
        looking, writing = state.state
        contribution = word + memory.mean + self.of_writing(writing.h)
        looking = self.looking_cell(looking, contribution)
        context, looks = self.look(looking.h, memory, state)
        gates = self.of_context(context)
        writing = self.writing_cell(writing, gates + self.of_looking(looking.h))
        return Decoding(state.fed + 1, (looking, writing), None, looks), writing.h

    def generate(self, words: jax.Array, steps: jax.Array, memory: Encoded) -> jax.Array:
        """See `RecurrentWriter.generate`, of states h2 [B,T,H]."""
        return self.out(self.drop(steps))
