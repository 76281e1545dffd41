"""RNNsearch (Bahdanau, Cho, Bengio 2015): a recurrent decoder that searches the source at every step.

Encoder: ann_j = [forward GRU_j ; backward GRU_j]. Decoder, for i = 1..T:

    s_0      = tanh(backward_1 W_s)
    c_i      = attention(s_{i-1}, ann)                                 any registered mechanism; additive in the paper
    s_i      = GRU(s_{i-1}, y_{i-1} W + c_i C)
    t_i      = maxout_2(s_i U_o + y_{i-1} V_o + c_i C_o)               largest of each pair of units
    logits_i = t_i W_o

Source: D. Bahdanau, K. Cho, Y. Bengio, "Neural Machine Translation by Jointly Learning to Align and Translate", ICLR 2015
(arXiv 1409.0473), sections 3 and A.1-A.2. `readout` settles the paper's own inconsistency about which state the output sees.
Beyond the paper: dropout, and a decoder state whose width may differ from the encoder's. Its weights start Glorot uniform
(the paper: N(0, 0.01^2)), recurrent ones orthogonal as there.

Axis letters: B batch, S source length, T target length, V vocabulary, E embedding, H encoder width, G decoder width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.projections import Dense, Dropout
from attnlab.attention.protocol import MAPS, Attention, Need
from attnlab.attention.visibility import Visibility
from attnlab.layers.recurrent import BidirectionalGRU, GRUCell
from attnlab.systems.protocol import PAD, Seq2Seq


@flax.struct.dataclass
class Encoded:
    """The attention's memory of the annotations, and the decoder's first state s_0 [B,G]."""

    attended: Any
    first: jax.Array


@flax.struct.dataclass
class Decoding:
    """Tokens fed so far, [] int32, and the state s [B,G]."""

    fed: jax.Array
    s: jax.Array


class RNNsearch(Seq2Seq):
    """RNNsearch (Bahdanau et al. 2015): GRU encoder-decoder that attends to the source before every word.

    Attributes:
      attention: factory of the mechanism; called with the width of the annotations, 2H.
      embedding: E, both sides.
      encoder: H, state width of each encoder direction.
      decoder: G, state width of the decoder.
      maxout: number of output pairs l (so 2l units before the maximum).
      readout: which state the output layer sees: "current" s_i (the paper's main text) or "previous" s_{i-1} (its appendix,
        to the letter; the authors' released code also lets the recurrence read y_i before that).
      dropout: rate on the embeddings, the annotations and the maxout layer; the paper has none.
    """

    attention: Callable[..., Attention]
    embedding: int = 64
    encoder: int = 64
    decoder: int = 128
    maxout: int = 64
    readout: Literal["current", "previous"] = "current"
    dropout: float = 0.0

    parts = {"attention": MECHANISMS}
    needs = {"attention": Need(role="cross", stepwise=True)}

    def setup(self) -> None:
        self.embed_source = nn.Embed(self.source_vocabulary, self.embedding, embedding_init=nn.initializers.normal(self.embedding**-0.5))
        self.embed_target = nn.Embed(self.target_vocabulary, self.embedding, embedding_init=nn.initializers.normal(self.embedding**-0.5))
        self.reader = BidirectionalGRU(self.encoder)
        self.first_state = Dense(self.decoder, use_bias=False)
        self.search = self.attention(width=2 * self.encoder)
        self.of_word = Dense(3 * self.decoder)
        self.of_context = Dense(3 * self.decoder, use_bias=False)
        self.cell = GRUCell(self.decoder)
        self.out_state = Dense(2 * self.maxout)
        self.out_word = Dense(2 * self.maxout, use_bias=False)
        self.out_context = Dense(2 * self.maxout, use_bias=False)
        self.out = Dense(self.target_vocabulary)
        self.drop = Dropout(self.dropout)

    def encode(self, source: jax.Array) -> Encoded:
        """See `Seq2Seq.encode`."""
        valid = source != PAD
        annotations = self.reader(self.drop(self.embed_source(source)), valid)  # [B,S,2H]
        first = jnp.tanh(self.first_state(annotations[:, 0, self.encoder :]))
        return Encoded(self.search.remember(self.drop(annotations), valid), first)

    def decode(self, memory: Encoded, target_in: jax.Array) -> jax.Array:
        """See `Seq2Seq.decode`; only the recurrence itself runs step by step."""
        words = self.drop(self.embed_target(target_in))  # [B,T,E]

        def step(
            system: RNNsearch, state: jax.Array, inputs: tuple[jax.Array, jax.Array], attended: Any
        ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            word, i = inputs
            following, context = system._transition(state, word, attended, i)
            return following, (following if system.readout == "current" else state, context)

        scan = nn.scan(
            step,
            variable_broadcast="params",
            variable_axes={MAPS: 2},  # weights [B,H,1,S] of each step stack along the query axis: [B,H,T,1,S]
            split_rngs={"params": False, "dropout": True, "sample": True},
            in_axes=((1, 0), nn.broadcast),
            out_axes=1,
        )
        _, (states, contexts) = scan(self, memory.first, (self.of_word(words), jnp.arange(target_in.shape[1])), memory.attended)
        return self._generate(states, words, contexts)

    def start(self, memory: Encoded, length: int) -> Decoding:
        """See `Seq2Seq.start`."""
        return Decoding(jnp.zeros((), jnp.int32), memory.first)

    def step(self, state: Decoding, memory: Encoded, tokens: jax.Array) -> tuple[jax.Array, Decoding]:
        """See `Seq2Seq.step`."""
        word = self.embed_target(tokens)
        following, context = self._transition(state.s, self.of_word(word), memory.attended, state.fed)
        seen = following if self.readout == "current" else state.s
        return self._generate(seen, word, context), Decoding(state.fed + 1, following)

    def _transition(self, state: jax.Array, word: jax.Array, attended: Any, i: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Look and Update of step i: state [B,G] and the word's contribution [B,3G] to the next state and the context [B,2H]."""
        context = self.search.read(state[:, None], attended, Visibility(offset=i)).context[:, 0]
        return self.cell(state, word + self.of_context(context)), context

    def _generate(self, state: jax.Array, word: jax.Array, context: jax.Array) -> jax.Array:
        """The deep output: state [...,G], word [...,E], context [...,2H] to logits [...,V]."""
        units = self.out_state(state) + self.out_word(word) + self.out_context(context)
        pairs = units.reshape(*units.shape[:-1], self.maxout, 2)
        return self.out(self.drop(pairs.max(axis=-1)))
