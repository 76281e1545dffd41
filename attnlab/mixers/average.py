"""Average attention (Zhang et al. 2018): the running mean of the tokens so far and a gate, in place
of a causal self-attention; a control, with a state of one size.

    g_t = FFN(1/t (x_1 + ... + x_t))                FFN(a) = relu(a W_1 + b_1) W_2 + b_2, or a itself
    i_t, f_t = sigmoid([x_t ; g_t] W + b)           y_t = i_t * x_t + f_t * g_t

The map that is recorded is that of the mean, 1/t for every token up to t, before the FFN and the gate.
t counts real tokens: padding adds nothing to the mean. Cost: 4 T d F FLOPs for the FFN of hidden
width F and 8 T d^2 for the gates; the means take 2 T d. State: d numbers and a count. Source: B.
Zhang, D. Xiong, J. Su, "Accelerating Neural Transformer via an Average Attention Network", ACL 2018
(arXiv 1805.00631), equations 5-7. The residual connection and the norm around it, equation 8, are
those of the block.
"""

import dataclasses
from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Mixer
from attnlab.attention.view import CAUSAL, View
from attnlab.errors import at_least
from attnlab.layers.dense import Dense, inner_dtype, widened
from attnlab.mixers.recurrent import PASSING, one_text


@flax.struct.dataclass
class Sums:
    """The sum [B,d] of the tokens so far, and how many there were [B]; in the inner precision."""

    total: jax.Array
    count: jax.Array


class Average(Mixer):
    """The running mean of the tokens so far, and a gate (Zhang et al. 2018).

    Attributes:
      hidden: F, of the FFN; 0 for no FFN.

    Card: control; Zhang et al., Average Attention Network, ACL 2018; time T d F + T d^2; state d;
    path 1; steps 1.
    """

    hidden: int = 512

    capabilities = dataclasses.replace(PASSING, maps="exact")

    def setup(self) -> None:
        at_least(0, "average", hidden=self.hidden)
        if self.hidden:
            self.w_hidden, self.w_mean = Dense(self.hidden), Dense(self.width)
        self.w_gates = Dense(2 * self.width)

    def begin(self, rows: int, room: int, dtype: Any) -> Sums:
        """See `Mixer.begin`."""
        kind = inner_dtype(jnp.zeros((), dtype))
        return Sums(jnp.zeros((rows, self.width), kind), jnp.zeros(rows, kind))

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, Sums]:
        """Mixes each token of x [B,T,d] by learned gates with the running mean (through an FFN if
        `hidden`) of the real tokens up to it, continued from `state`; returns y [B,T,d] and the new
        `Sums` (sum and count); raises UserError for segments. See `Mixer.mix`.
        """
        one_text(self, view)
        state = self.begin(len(x), 0, x.dtype) if state is None else state
        real = jnp.ones(x.shape[:2], bool) if view.valid is None else view.valid
        inputs = jnp.where(real[..., None], widened(x), 0.0)
        totals = state.total[:, None] + jnp.cumsum(inputs, axis=1)
        counts = state.count[:, None] + jnp.cumsum(real, axis=1, dtype=inputs.dtype)
        mean = (totals / jnp.maximum(counts, 1.0)[..., None]).astype(x.dtype)
        if self.is_collecting():
            averaged = jnp.tri(x.shape[1]) * real[:, None]
            self.record((averaged / jnp.maximum(counts, 1.0)[..., None])[:, None])
        if self.hidden:
            mean = self.w_mean(jax.nn.relu(self.w_hidden(mean)))
        gates = jax.nn.sigmoid(self.w_gates(jnp.concatenate([x, mean], axis=-1)))
        token_gate, mean_gate = jnp.split(gates, 2, axis=-1)
        return token_gate * x + mean_gate * mean, dataclasses.replace(
            state,
            total=state.total + inputs.sum(axis=1),
            count=state.count + real.sum(axis=1, dtype=inputs.dtype),
        )
