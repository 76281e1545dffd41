"""Gated attention (Qiu et al. 2025): each head's output times a sigmoid of the query's input,
before the output projection.

    y = concat_h(O_h * sigmoid(x W_g)) W_o        O_h the multi-head outputs, x the query

Cost: one more projection of the query; parameters: width^2 more (element-wise) or width H
(head-wise). A gate near zero turns a head off, which a softmax cannot do. A gate starts at about
one half. Source: Z. Qiu et al., "Gated Attention for Large Language Models: Non-linearity,
Sparsity, and Attention-Sink-Free", 2025, its best position (G1). No bias, as there.
"""

from typing import Literal

import jax

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.layers.dense import Dense


class Gated(MultiHead):
    """Multi-head attention with a gate for every output of a head, or for every head; other fields
    as in `MultiHead`.

    Attributes:
      gate: "element" (one for each number of its output) or "head" (one for each head).

    Card: heads; Qiu et al., Gated Attention for LLMs, 2025; time T^2 d + T d^2; state T d K / H;
    path 1; steps 1.
    """

    gate: Literal["element", "head"] = "element"

    def setup(self) -> None:
        super().setup()
        size = self.size() if self.gate == "element" else 1
        self.w_gate = Dense(self.heads * size, use_bias=False)

    def join(self, context: jax.Array, query: jax.Array) -> jax.Array:
        """See `MultiHead.join`."""
        gates = jax.nn.sigmoid(self.w_gate(query))
        if self.gate == "element":
            return super().join(context, query) * gates
        return super().join(context * gates.transpose(0, 2, 1)[..., None], query)
