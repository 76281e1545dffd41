"""Gated linear attention (Yang et al. 2024): linear attention that forgets each channel of the keys
as the token says.

    q, k, v = x W_q / sqrt(D),  x W_k,  x W_v                   keys are `key_share` of the width, values the width
    alpha_t = sigmoid(x W_1 W_2 + b)^(1 / tau)                  in (0,1)^D for each head; W_1 of low rank
    S_t     = Diag(alpha_t) S_{t-1} + k_t v_t^T,  o_t = q_t^T S_t
    y       = (silu(x W_r + b_r) * RMSNorm(o)) W_o              the norm over each head

Source: S. Yang, B. Wang, Y. Shen, R. Panda, Y. Kim, "Gated Linear Attention Transformers with
Hardware-Efficient Training", ICML 2024 (arXiv 2312.06635), equations 3 to 6; tau = 16, rank 16 and 4
heads as there.

Axis letters: B batch, H heads, T tokens of a piece, D width of keys of a head, E of values, d width.
"""

from typing import Any

import flax.linen as nn
import jax

from attnlab.attention.protocol import head_width
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, joined, split, unbiased, widened
from attnlab.layers.norms import GatedNorm
from attnlab.mixers.stateful import Shape, Stateful, Steps


class GatedLinear(Stateful):
    """Gated linear attention (GLA). The fields not named here are those of `Stateful`.

    Attributes:
      heads: H; must divide the width and the width of the keys.
      key_share: the width of all keys, in widths.
      rank: of the projection to gates.
      temperature: tau; the larger, the less is forgotten.

    Card: state; Yang et al., Gated Linear Attention, ICML 2024; time T d^2; state d^2 / H; path 1;
    steps T / C.
    """

    heads: int = 4
    key_share: float = 0.5
    rank: int = 16
    temperature: float = 16.0

    def setup(self) -> None:
        """Checks `temperature` and `rank` (raises UserError if they are not above 0), and creates
        the projections, the forget gate of low rank and the gated norm.
        """
        if self.temperature <= 0 or self.rank < 1:
            raise UserError(
                f"gated_linear: temperature={self.temperature} and rank={self.rank} must be above 0"
            )
        keys = self._keys()
        self.w_query, self.w_key = unbiased(2, keys)
        self.w_value, self.out = unbiased(2, self.width)
        self.w_low, self.w_forget = Dense(self.rank, use_bias=False), Dense(keys)
        self.w_gate = Dense(self.width)
        self.norm = GatedNorm()

    @nn.nowrap
    def _keys(self) -> int:
        return round(self.key_share * self.width)

    @nn.nowrap
    def shape(self) -> Shape:
        """See `Stateful.shape`."""
        depth = head_width("gated_linear", self._keys(), self.heads, "key_share * width")
        return Shape(self.heads, depth, head_width("gated_linear", self.width, self.heads))

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the recurrence for x [B,T,d]: scaled queries, keys, values, and
        the log forget gate of each key channel, log sigmoid(x W_1 W_2 + b) / temperature; the other
        arguments are not used. See `Stateful.steps`.
        """
        q, k, v, f = (
            split(projected, self.heads)
            for projected in (
                self.w_query(x),
                self.w_key(x),
                self.w_value(x),
                self.w_forget(self.w_low(x)),
            )
        )
        g = jax.nn.log_sigmoid(widened(f)) / self.temperature
        return Steps(q * q.shape[-1] ** -0.5, k, v, g)

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        return self.out(joined(self.norm(o, split(self.w_gate(x), self.heads))).astype(x.dtype))
