"""Stacked attention networks: a question looks at the places of an image several times, and what it
has seen is added to it before the next look.

    v_l      = tanh(f_l W_I + b_I)                                              [L,d]
    u_0      = the last state of an LSTM over the question                      [d]
    hop k    p_l = softmax over l of w^k . tanh(v_l W_IA^k + u_{k-1} W_QA^k)     any registered mechanism
             u_k = u_{k-1} + sum over l of p_l v_l
    logits   = u_K W_u + b_u

Source: Z. Yang, X. He, J. Gao, L. Deng, A. Smola, "Stacked Attention Networks for Image Question
Answering", CVPR 2016, equations 15 to 22, with the LSTM of section 3.2. The additive score has no
bias b_A^k inside the tanh; that of the softmax changes nothing. Not here: a CNN over the question.

Axis letters: B batch, L places, d width, K hops, C classes.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from attnlab.attention import MECHANISMS
from attnlab.attention.needs import Need
from attnlab.attention.protocol import Attention
from attnlab.errors import at_least
from attnlab.layers.dense import Dense
from attnlab.systems.protocol import looked
from attnlab.systems.vision.answering import Answerer, per_question


class StackedAttention(Answerer, kw_only=True):
    """Stacked attention networks (Yang et al. 2016).

    Attributes:
      attention: factory of the mechanism of every hop, each with parameters of its own; called with
        the width d.
      hops: K, how many times the image is looked at, each time with what was seen before.
      width: d, of the places and of the state of the question.

    Card: Yang et al., Stacked Attention Networks, CVPR 2016.
    """

    attention: Callable[..., Attention]
    hops: int = 2

    parts = {**Answerer.parts, "attention": MECHANISMS}
    needs = {"attention": Need(role="cross", padding=False)}

    def setup(self) -> None:
        """Creates the reader of questions, the projection of places, an attention for each hop and
        the output layer; raises `UserError` for hops below 1.
        """
        at_least(1, "stacked_attention", hops=self.hops)
        super().setup()
        self.of_place = Dense(self.width)
        self.look = [
            self.attention(width=self.width, name=f"attention_{hop}") for hop in range(self.hops)
        ]
        self.out = Dense(self.classes)

    def __call__(self, images: jax.Array, questions: jax.Array) -> jax.Array:
        """Computes the logits [B,C] of answers to questions [B,S] about images: the question's
        vector attends to the image once for each hop, and each context is added to it. See
        `VisualAnswerer.__call__`.
        """
        places = jnp.tanh(self.of_place(self.places(images, questions)))
        asks = self.read(questions).last
        for look in self.look:
            memory = per_question(look.remember(places), images, questions)
            asks = asks + looked(self, look.read(asks[:, None], memory))[:, 0]
        return self.out(self.drop(asks))
