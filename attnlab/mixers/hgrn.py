"""HGRN2 (Qin et al. 2024): a gated recurrence whose gates are the keys too: what is forgotten makes
room for what is written.

    f_t = l + (1 - l) sigmoid(x W_f)                        in (0,1)^D for each head
    q   = silu(x W_q),  v = x W_i,  k_t = 1 - f_t
    S_t = Diag(f_t) S_{t-1} + k_t v_t^T,  o_t = q_t^T S_t
    y   = RMSNorm(o) W_o                                    the norm over all heads together

Source: Z. Qin et al., "HGRN2: Gated Linear RNNs with State Expansion", COLM 2024 (arXiv 2404.07904),
equations 5 to 8. There l is learned, larger in higher layers and 0 in the first; a mixer does not
know its layer, so here it is a number of the config, which `by_layer` may vary.

Axis letters: B batch, H heads, T tokens of a piece, D width of a head, d width.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.protocol import head_width
from attnlab.errors import UserError
from attnlab.layers.dense import joined, split, unbiased, widened
from attnlab.layers.norms import RMSNorm
from attnlab.mixers.stateful import Shape, Stateful, Steps


class Hgrn(Stateful):
    """HGRN2. The fields not named here are those of `Stateful`.

    Attributes:
      heads: H; must divide the width.
      least: l, the least that is kept of a channel at each token, from 0 to less than 1.

    Card: state; Qin et al., HGRN2, COLM 2024; time T d^2; state d^2 / H; path 1; steps T / C.
    """

    heads: int = 4
    least: float = 0.0

    def setup(self) -> None:
        """Checks that `least` is at least 0 and below 1 (raises UserError if not), and creates the
        projections and the norm.
        """
        if not 0.0 <= self.least < 1.0:
            raise UserError(f"hgrn: least={self.least}, must be at least 0 and less than 1")
        self.w_query, self.w_forget, self.w_value, self.out = unbiased(4, self.width)
        self.norm = RMSNorm()

    @nn.nowrap
    def shape(self) -> Shape:
        """See `Stateful.shape`."""
        depth = head_width("hgrn", self.width, self.heads)
        return Shape(self.heads, depth, depth)

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the recurrence for x [B,T,d]: queries silu(x W_q), the log of the
        forget gate f (f at least l = `least`), 1 - f in place of keys, and values; the other
        arguments are not used. See `Stateful.steps`; 1 - f = (1 - l) sigmoid(-x W_f).
        """
        q, f, v = (split(w(x), self.heads) for w in (self.w_query, self.w_forget, self.w_value))
        f = widened(f)
        g = jax.nn.log_sigmoid(f)
        if self.least:
            g = jnp.logaddexp(math.log(self.least), math.log1p(-self.least) + g)
        return Steps(jax.nn.silu(q), (1.0 - self.least) * jax.nn.sigmoid(-f), v, g)

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        return self.out(self.norm(joined(o)).astype(x.dtype))
