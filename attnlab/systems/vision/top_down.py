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

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.attention.view import View
from attnlab.layers.dense import Dense, Dropout
from attnlab.layers.initial import Embed, Initial
from attnlab.layers.lstm import GATES, GateInputs, LSTMCell, LSTMState
from attnlab.mixers.steps import over_time
from attnlab.systems.protocol import Card, looked
from attnlab.systems.vision.captioner import Captioner, check_channels, mean_of


@flax.struct.dataclass
class Encoded:
    """The attention's memory of the regions, and what their mean adds to the gates of LSTM_1,
    [B,4H].
    """

    attended: Any
    mean: jax.Array


@flax.struct.dataclass
class Decoding:
    """Words fed so far, [] int32; the states of both LSTMs [B,H]; what the looks so far leave to the
    next (`Attention.initial_history`).
    """

    fed: jax.Array
    looking: LSTMState
    writing: LSTMState
    looks: Any


class TopDown(Captioner, kw_only=True):
    """Bottom-up and top-down attention (Anderson et al. 2018): an LSTM says where to look, another
    writes. The fields not named here are those of `Captioner`.

    Attributes:
      attention: factory of the mechanism; called with D.
      features: D, the width of regions, or the channels of the backbone's feature map.
      embedding: E, of words.
      width: H, of both LSTMs.
      normal: weights but the recurrent ones and the mechanism's start N(0, normal^2), the paper's
        being 0.01; 0 for Glorot's initializer.
      dropout: rate on words and on h2_t before the output; the paper has none.
    """

    attention: Callable[..., Attention]
    features: int = 64
    embedding: int = 64
    width: int = 128
    normal: float = 0.0
    dropout: float = 0.0

    parts = {**Captioner.parts, "attention": MECHANISMS}
    needs = {"attention": Need(role="cross", stepwise=True, history=True)}
    card = Card(2018, "Anderson et al., Bottom-Up and Top-Down Attention, CVPR 2018")

    def setup(self) -> None:
        super().setup()
        initial = Initial(normal=self.normal)
        gates = functools.partial(
            Dense, GATES * self.width, use_bias=False, kernel_init=initial.kernel(GATES)
        )
        self.embed_target = Embed(
            self.target_vocabulary,
            self.embedding,
            embedding_init=initial.embedding(self.embedding),
        )
        self.search = self.attention(width=self.features, name="attention")
        self.of_word = GateInputs(self.width, initial)
        self.of_mean, self.of_writing = gates(), gates()
        self.looking_cell = LSTMCell(self.width, initial)
        self.of_context = GateInputs(self.width, initial)
        self.of_looking = gates()
        self.writing_cell = LSTMCell(self.width, initial)
        self.out = Dense(self.target_vocabulary, kernel_init=initial.output())
        self.drop = Dropout(self.dropout)

    def encode(self, source: jax.Array, valid: jax.Array | None = None) -> Encoded:
        """See `Captioner.encode`; `UserError` if D is another."""
        v, real = self.annotations(source, valid)
        check_channels(v, self.features)
        return Encoded(self.search.remember(v, real), self.of_mean(mean_of(v, real)))

    def decode(self, memory: Encoded, target_in: jax.Array) -> jax.Array:
        """See `Writer.decode`; only the recurrence itself runs step by step."""

        def step(
            system: TopDown, state: Decoding, word: jax.Array, memory: Encoded
        ) -> tuple[Decoding, jax.Array]:
            state = system._transition(state, word, memory)
            return state, state.writing.h

        words = self.of_word(self.drop(self.embed_target(target_in)))
        first = self.start(memory, target_in.shape[1])
        return self.out(self.drop(over_time(step)(self, first, words, memory)[1]))

    def start(self, memory: Encoded, length: int) -> Decoding:
        """See `Writer.start`."""
        zeros = LSTMState.zeros(len(memory.mean), self.width, memory.mean.dtype)
        looks = self.search.initial_history(memory.attended)
        return Decoding(jnp.zeros((), jnp.int32), zeros, zeros, looks)

    def step(
        self, state: Decoding, memory: Encoded, tokens: jax.Array
    ) -> tuple[jax.Array, Decoding]:
        """See `Writer.step`."""
        state = self._transition(state, self.of_word(self.embed_target(tokens)), memory)
        return self.out(state.writing.h), state

    def _transition(self, before: Decoding, word: jax.Array, memory: Encoded) -> Decoding:
        """Step t; `word` [B,4H] is what y_{t-1} adds to the gates of LSTM_1, with its bias."""
        contribution = word + memory.mean + self.of_writing(before.writing.h)
        looking = self.looking_cell(before.looking, contribution)
        view = View(positions=before.fed)
        reading = self.search.read(looking.h[:, None], memory.attended, view, history=before.looks)
        seen = self.of_context(looked(self, reading)[:, 0])
        writing = self.writing_cell(before.writing, seen + self.of_looking(looking.h))
        return Decoding(before.fed + 1, looking, writing, reading.history)
