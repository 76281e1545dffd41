"""One GRU reads, another writes, and looks at the source after every word that it has read: the smallest translator that attends.

ann_1 .. ann_S = BiGRU(x_1 .. x_S)        h_t = GRU(h_{t-1}, y_{t-1}), h_0 = 0        c_t = attention(h_t, ann)
logits_t = tanh([c_t ; h_t] W_c) W_o + b               Luong et al. 2015, with GRUs and without input feeding
"""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.layers.dense import Dense, Dropout
from attnlab.layers.recurrent import BidirectionalGRU, GRULayer
from attnlab.systems.protocol import Seq2Seq, looked


class LookAfter(Seq2Seq):
    """A GRU a side, and a look at the source after every word.

    Attributes:
      attention: factory of the mechanism; called with the width of the annotations.
      embedding: width of the embeddings, both sides.
      width: of the decoder's state, and of the annotations, half of it from each direction.
      dropout: rate before the output.
    """

    attention: Callable[..., Attention]
    embedding: int = 32
    width: int = 64
    dropout: float = 0.0

    parts = {"attention": MECHANISMS}
    needs = {"attention": Need(role="cross", stepwise=True)}

    def setup(self):
        both = (self.source_vocabulary, self.target_vocabulary)
        self.embed_source, self.embed_target = (nn.Embed(size, self.embedding) for size in both)
        self.reader, self.writer = BidirectionalGRU(self.width // 2), GRULayer(self.width)
        self.search = self.attention(width=self.width, name="attention")
        self.combine, self.out, self.drop = (
            Dense(self.width, use_bias=False),
            Dense(self.target_vocabulary),
            Dropout(self.dropout),
        )

    def encode(self, source):
        return self.search.remember(
            self.reader(self.embed_source(source), self.real(source)), self.real(source)
        )

    def decode(self, memory, target_in):
        return self._logits(
            self.writer(self.embed_target(target_in), jnp.ones(target_in.shape, bool)), memory
        )

    def start(self, memory, length):
        return jnp.zeros((len(memory.valid), self.width))

    def step(self, state, memory, tokens):
        state = self.writer.cell(state, self.writer.of_input(self.embed_target(tokens)))
        return self._logits(state[:, None], memory)[:, 0], state

    def _logits(self, states, memory):
        contexts = looked(self, self.search.read(states, memory))
        return self.out(
            self.drop(jnp.tanh(self.combine(jnp.concatenate([contexts, states], axis=-1))))
        )
