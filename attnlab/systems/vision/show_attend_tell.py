"""Show, Attend and Tell (Xu et al. 2015): an LSTM writes a caption and looks at the feature map of the
image before every word, softly or at one place.

    c_0, h_0   = tanh(mean_i(a_i) W_c + b_c), tanh(mean_i(a_i) W_h + b_h)
    zhat_t     = attention(h_{t-1}, a)                    any registered mechanism; additive in the paper
    z_t        = beta_t zhat_t                            beta_t = sigmoid(h_{t-1} w_b + b_b), a number, or one for each channel
    c_t, h_t   = LSTM(h_{t-1}, E y_{t-1} W + z_t W_z + b)
    logits_t   = tanh(E y_{t-1} + h_t L_h + z_t L_z + b_o) L_o + b_l

Soft attention is the alignment "softmax"; the hard one is "hard" (sampled, trained by REINFORCE with
the node `reinforce`), "straight_through" or "gumbel". The penalty on places that are never looked at
is `auxiliary.doubly_stochastic`.

Source: K. Xu et al., "Show, Attend and Tell: Neural Image Caption Generation with Visual Attention",
ICML 2015, sections 3.1 and 4, and the authors' code, which has the tanh before L_o that the paper
leaves out, and one layer for c_0 and h_0. Otherwise than there: the backbone is trained with the
rest, where theirs was a VGG network, trained for ImageNet and kept; the word before the first is an
embedding of its own, where theirs is zero; the forget gate starts open. Weights start as in the paper
with normal=0.01: N(0, 0.01^2), recurrent ones orthogonal; with normal=0 Glorot uniform.

Axis letters: B batch, L places, D channels, T target length, V vocabulary, E embedding, H width.
"""

import functools
from collections.abc import Callable
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.layers.dense import Dense
from attnlab.layers.initial import Initial
from attnlab.layers.lstm import GATES, GateInputs, LSTMCell, LSTMState
from attnlab.systems.protocol import mean_of
from attnlab.systems.recurrent.writer import Decoding, Encoded, RecurrentWriter
from attnlab.systems.vision.captioner import Captioner, check_channels


class LSTMCaptioner(RecurrentWriter, Captioner, kw_only=True):
    """Base of the captioners whose LSTMs look at regions or at a feature map before every word. Not a
    system by itself. The fields not named here are those of `Captioner`.

    Attributes:
      attention: factory of the mechanism; called with D.
      features: D, the width of regions, or the channels of the backbone's feature map.
      embedding: E, the width of the embeddings of words.
      width: H, the width of the state of every LSTM.
      normal: weights but the recurrent ones and the mechanism's start N(0, normal^2), the papers'
        being 0.01; 0 for Glorot's initializer.
      dropout: rate on words and on the state before the output.
    """

    attention: Callable[..., Attention]
    features: int = 64
    embedding: int = 64
    width: int = 128
    normal: float = 0.0
    dropout: float = 0.0

    parts = {**Captioner.parts, "attention": MECHANISMS}
    needs = {"attention": Need(role="cross", stepwise=True, history=True)}

    def setup(self) -> None:
        """Creates the backbone, the layers of words, the attention, and what words give to the
        LSTM that reads them.
        """
        super().setup()
        self.initial = Initial(normal=self.normal)
        of_words = self.initial.embedding(self.embedding)
        self.add_word_layers(self.initial, of_words, self.embedding, self.dropout)
        self.search = self.attention(width=self.features, name="attention")
        self.of_word = GateInputs(self.width, self.initial)

    @nn.nowrap
    def gates(self) -> Dense:
        """Makes a layer to the gates of an LSTM."""
        kernel_init = self.initial.kernel(GATES)
        return Dense(GATES * self.width, use_bias=False, kernel_init=kernel_init)

    def regions(
        self, source: jax.Array, valid: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Computes the `annotations` [B,L,D] of images or regions, which are real [B,L], and their
        mean [B,D]; raises `UserError` if D is not `features`.
        """
        a, real = self.annotations(source, valid)
        check_channels(a, self.features)
        return a, real, mean_of(a, real)


class ShowAttendTell(LSTMCaptioner, kw_only=True):
    """Show, Attend and Tell (Xu et al. 2015): an LSTM looks at a feature map before every word. The
    fields not named here are those of `LSTMCaptioner`.

    Attributes:
      embedding: E, the width of the embeddings of words and of the layer before the output.
      gate: beta: a number for each look ("scalar", the paper's), one for each channel ("vector"), or
        1 ("none").
      dropout: rate on words, on h_t before the output and on the deep output; the paper's is 0.5.

    Card: Xu et al., Show, Attend and Tell, ICML 2015.
    """

    gate: Literal["scalar", "vector", "none"] = "scalar"

    def setup(self) -> None:
        """Creates the backbone, the attention, the gate of the context if there is one, the LSTM
        cell and the layers of first state and output.
        """
        super().setup()
        dense = functools.partial(Dense, kernel_init=self.initial.kernel())
        self.first_cell, self.first_state = dense(self.width), dense(self.width)
        if self.gate != "none":
            self.selector = dense(1 if self.gate == "scalar" else self.features)
        self.of_context = self.gates()
        self.cell = LSTMCell(self.width, self.initial)
        self.out_state = dense(self.embedding)
        self.out_context = dense(self.embedding, use_bias=False)

    def encode(self, source: jax.Array, valid: jax.Array | None = None) -> Encoded:
        """Encodes images, `source`, of which `valid` [B] are real, to an `Encoded`: the attention's
        memory of their annotations [B,L,D], and the LSTM's first state, made of the mean; raises
        `UserError` if D is not `features`. See `Captioner.encode`.
        """
        a, real, mean = self.regions(source, valid)
        first = LSTMState(jnp.tanh(self.first_cell(mean)), jnp.tanh(self.first_state(mean)))
        return Encoded(self.search.remember(a, real), first)

    def transition(
        self, state_before: Decoding, word: jax.Array, memory: Encoded
    ) -> tuple[Decoding, tuple[jax.Array, jax.Array]]:
        """Computes one step from the decoding state before, `word`, the word's part [B,4H] of the
        gates, and the encoded image `memory`: the (gated) context z_t of the last h, then the LSTM
        cell; returns the next state, and the pair h_t and z_t for the output. See
        `RecurrentWriter.transition`; `word` [B,4H] is E y_{t-1} W + b.
        """
        h = state_before.state.h
        z, looks = self.look(h, memory, state_before)
        z = z if self.gate == "none" else jax.nn.sigmoid(self.selector(h)) * z
        state = self.cell(state_before.state, word + self.of_context(z))
        return Decoding(state_before.fed + 1, state, None, looks), (state.h, z)

    def generate(
        self, words: jax.Array, steps: tuple[jax.Array, jax.Array], memory: Encoded
    ) -> jax.Array:
        """See `RecurrentWriter.generate`: the deep output of states [B,T,H] and contexts [B,T,D]."""
        h, z = steps
        deep = jnp.tanh(words + self.out_state(self.drop(h)) + self.out_context(z))
        return self.out(self.drop(deep))
