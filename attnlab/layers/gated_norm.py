"""An RMS norm and a gate, the end of a recurrent mixer.

    norm first      N(o) * a(z)          RetNet, GLA, Gated DeltaNet, KDA
    gate first      N(o * a(z))          Mamba-2

N is `RMSNorm` over the last axis, so over a head for o [..., E] and over all for o [..., d]. Source:
Y. Sun et al., "Retentive Network", 2023 (with a group norm); T. Dao, A. Gu, "Transformers are SSMs",
ICML 2024.
"""

from typing import Literal

import flax.linen as nn
import jax

from attnlab.layers.norms import RMSNorm
from attnlab.layers.precision import widened


class GatedNorm(nn.Module):
    """An RMS norm and a gate.

    Attributes:
      activation: a.
      first: which of the two comes first.
      epsilon: eps of the norm.
    """

    activation: Literal["silu", "sigmoid"] = "silu"
    first: Literal["norm", "gate"] = "norm"
    epsilon: float = 1e-5

    @nn.compact
    def __call__(self, o: jax.Array, z: jax.Array) -> jax.Array:
        """o and z [..., n] to [..., n], in the inner precision."""
        norm = RMSNorm(self.epsilon, name="norm")
        gate = getattr(jax.nn, self.activation)(widened(z))
        return norm(widened(o)) * gate if self.first == "norm" else norm(widened(o) * gate)
