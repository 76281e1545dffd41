"""Kimi delta attention (Kimi Team 2025): the delta rule on a state each of whose rows forgets as the
token says.

    q, k, v, beta as in DeltaNet (`delta_net`)
    g_t = -e^A softplus(x W_1 W_2 + b)                                                [H,D]; A one number for each head
    S_t = (I - beta_t k_t k_t^T) Diag(e^{g_t}) S_{t-1} + beta_t k_t v_t^T             o_t = q_t^T S_t
    y   = (sigmoid(x W_3 W_4 + c) * RMSNorm(o)) W_o                                   the norm over each head

First the state is decayed, then corrected. W_1 and W_3 are as wide as a head, or `rank`. e^A starts
uniform in [1, 16], softplus(b) log-uniform in [1e-3, 0.1]. Gates alike for all channels: Gated
DeltaNet. Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture", 2025
(arXiv 2510.26692), equation 1 and section 4; W_2 and b are not shared by heads.

Axis letters: B batch, H heads, T tokens of a piece, D width of a head, d width, C tokens of a chunk,
k taps.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.layers.dense import Dense, joined, split, unbiased, widened
from attnlab.mixers.delta_net import DeltaNet
from attnlab.mixers.mamba import first_steps, rates


class Kda(DeltaNet):
    """Kimi delta attention (KDA). The fields not named here are those of `DeltaNet`.

    Attributes:
      rank: of the projections to gates; 0 for the width of a head.

    Card: state; Kimi Team, Kimi Linear, 2025; time T d^2; state d^2 / H + k d; path 1; steps T / C.
    """

    rank: int = 0

    called: ClassVar[str] = "kda"
    output_gate = "sigmoid"

    def setup(self) -> None:
        """Checks that `rank` is at least 0 (raises UserError if not), and creates the parameters of
        DeltaNet, and those of the forget gate and output gate, of low rank.
        """
        if self.rank < 0:
            raise UserError(f"kda: rank={self.rank}, must be at least 0 (0: the width of a head)")
        super().setup()
        rank = self.rank or self.shape().depth
        self.w_low, self.w_gate_low = unbiased(2, rank)
        self.w_forget, self.w_gate = Dense(self.width, use_bias=False), Dense(self.width)
        self.rate = self.param("rate", rates, (self.heads,))
        self.step = self.param("step", first_steps, (self.width,))

    def gates(self, x: jax.Array) -> jax.Array:
        """g [B,H,T,D]."""
        steps = jax.nn.softplus(widened(self.w_forget(self.w_low(x))) + widened(self.step))
        return -split(steps, self.heads) * jnp.exp(widened(self.rate))[:, None, None]

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        z = split(self.w_gate(self.w_gate_low(x)), self.heads)
        return self.out(joined(self.norm(o, z)).astype(x.dtype))
