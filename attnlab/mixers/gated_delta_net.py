"""Gated DeltaNet (Yang et al. 2025): the delta rule on a state that forgets; each head forgets as the
token says.

    q, k, v, beta as in DeltaNet (`delta_net`); keys are `key_share` of the width, values `expansion` times as wide
    alpha_t = e^{-e^A softplus(x W_a + b)}                                  one number in (0, 1) for each head
    S_t     = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T     o_t = q_t^T S_t
    y       = (silu(x W_g) * RMSNorm(o)) W_o                                the norm over each head

e^A starts uniform in [1, 16] (the authors' code: [0, 16], whose end forgets nothing), softplus(b)
log-uniform in [1e-3, 0.1]. alpha = 1 is DeltaNet. Source: S. Yang, J. Kautz, A. Hatamizadeh, "Gated
Delta Networks: Improving Mamba2 with Delta Rule", ICLR 2025 (arXiv 2412.06464), equation 10, with the
gates of Mamba-2.

Axis letters: B batch, H heads, T tokens of a piece, D width of keys of a head, E of values, d width,
C tokens of a chunk, k taps.
"""

from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.layers.dense import Dense, joined, split, widened
from attnlab.mixers.delta_net import DeltaNet
from attnlab.mixers.mamba import first_steps, rates


class GatedDeltaNet(DeltaNet):
    """Gated DeltaNet. The fields not named here are those of `DeltaNet`.

    Attributes:
      key_share: the width of all keys, in widths.
      expansion: the width of all values, in widths of the keys.

    Card: state; Yang et al., Gated Delta Networks, ICLR 2025; time T d^2; state d^2 / H + k d;
    path 1; steps T / C.
    """

    key_share: float = 0.75
    expansion: int = 2

    called: ClassVar[str] = "gated_delta_net"
    output_gate = "silu"

    def setup(self) -> None:
        """Creates the parameters of DeltaNet, and those of the forget gate and the output gate."""
        super().setup()
        self.w_forget = Dense(self.heads, use_bias=False)
        self.rate = self.param("rate", rates, (self.heads,))
        self.step = self.param("step", first_steps, (self.heads,))
        self.w_gate = Dense(self.values(), use_bias=False)

    @nn.nowrap
    def keys(self) -> int:
        """See `DeltaNet.keys`."""
        return round(self.key_share * self.width)

    @nn.nowrap
    def values(self) -> int:
        """See `DeltaNet.values`."""
        return self.expansion * self.keys()

    def gates(self, x: jax.Array) -> jax.Array:
        """g [B,H,T]."""
        steps = jax.nn.softplus(widened(self.w_forget(x)) + widened(self.step))
        return (-steps * jnp.exp(widened(self.rate))).transpose(0, 2, 1)

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        return self.out(joined(self.norm(o, split(self.w_gate(x), self.heads))).astype(x.dtype))
