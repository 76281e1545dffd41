"""Attention pooling: a text, or each of two, as a weighted mean of its LSTM states, with a learned
vector for the query.

    h_1 .. h_S = BiLSTM(x_1 .. x_S)        v = attention(u, h)                 any registered mechanism; u is learned
    logits     = W_2 relu(W_1 v)                                               one text
    logits     = W_2 relu(W_1 [p ; h ; |p - h| ; p * h])                       two, p and h their vectors

Source: Z. Yang, D. Yang, C. Dyer, X. He, A. Smola, E. Hovy, "Hierarchical Attention Networks for
Document Classification", NAACL 2016, its attention over words (equations 5-7), e_j = u_w . tanh(h_j
W + b): our additive score, where u W_q is the bias b. There over GRU states and under a second
level for the sentences of a document; the pair of texts and the hidden layer are ours. A text
without a token has the vector 0.

Axis letters: B batch, S and T tokens of the texts, H state width of a direction, C classes.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.layers.readers import Read
from attnlab.systems.protocol import looked
from attnlab.systems.recurrent.bilstm_pooling import SentenceClassifier


class AttentionPooling(SentenceClassifier, kw_only=True):
    """Attention pooling (Yang et al. 2016): the states of a bidirectional LSTM, weighted by
    attention with a learned query. The other fields are those of `SentenceClassifier`.

    Attributes:
      attention: factory of the mechanism; called with the width of the states, 2H.

    Card: Yang et al., Hierarchical Attention Networks for Document Classification, NAACL 2016.
    """

    attention: Callable[..., Attention]

    parts = {**SentenceClassifier.parts, "attention": MECHANISMS}
    needs = {"attention": Need(role="cross")}

    def setup(self) -> None:
        super().setup()
        self.look = self.attention(width=2 * self.width, name="attention")
        normal = nn.initializers.normal((2 * self.width) ** -0.5)
        self.query = self.param("query", normal, (2 * self.width,))

    def pooled(self, read: Read) -> jax.Array:
        """Computes the vector [B,2H] of a text that was read, by attention with the learned query."""
        shape = len(read.states), 1, 2 * self.width
        query = jnp.broadcast_to(self.query, shape).astype(read.states.dtype)
        return looked(self, self.look(query, read.states, valid=read.valid))[:, 0]
