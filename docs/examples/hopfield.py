"""Retrieval from a modern Hopfield network: patterns kept in memory complete a query, step by step (Ramsauer et al. 2021).

    k_j = s_j W_k        q_0 = x W_q        q_{n+1} = sum_j a_j k_j,  a = softmax over j of beta q_n . k_j        y = q_N W_o

Cost: `steps` times 4 Tq Tk d FLOPs, and three projections; a cache keeps d numbers per token.
Source: H. Ramsauer et al., "Hopfield Networks is All You Need", ICLR 2021 (arXiv 2008.02217), equation 3 and its layer "Hopfield".
"""

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import softmax
from attnlab.attention.protocol import Attention, Capabilities, Memory, Reading
from attnlab.attention.view import EVERYTHING
from attnlab.layers.dense import Dense, inner_dtype


@flax.struct.dataclass
class Patterns(Memory):
    """keys [B,1,Tk,d]."""

    keys: jax.Array


class Hopfield(Attention):
    """A few updates of a query towards the patterns it resembles.

    Attributes:
      steps: how many; after one it is attention whose values are the keys.
      beta: inverse temperature.

    Card: associative memory; Ramsauer et al., Hopfield Networks is All You Need, ICLR 2021;
    time T^2 d + T d^2; state T d; path 1; steps 1.
    """

    steps: int = 2
    beta: float = 0.5
    memory_class = Patterns
    capabilities = Capabilities()

    def setup(self):
        self.w_query, self.w_key, self.out = (Dense(self.width, use_bias=False) for _ in range(3))

    def arrays(self, tokens):
        return {"keys": self.w_key(tokens.keys)[:, None]}

    def read(self, query, memory, view=EVERYTHING, weights=False):
        mask = view.onto(memory, query).allowed()  # [B,H,Tq,Tk], or None if all may be seen
        state = self.w_query(query)[:, None]
        for _ in range(self.steps):
            scores = self.beta * jnp.einsum(
                "bhqd,bhkd->bhqk",
                state,
                memory.keys,
                preferred_element_type=inner_dtype(state, memory.keys),
            )
            found = softmax(scores, mask)
            state = jnp.einsum("bhqk,bhkd->bhqd", found.astype(state.dtype), memory.keys)
        return Reading(self.out(state[:, 0]), self.capture(found, memory, weights))
