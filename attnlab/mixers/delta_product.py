"""DeltaProduct (Siems et al. 2025): DeltaNet that takes m steps for each token, so that what a token
does to the state is a product of m reflections rather than one.

    S_{t,0} = S_{t-1}
    S_{t,j} = S_{t,j-1} + beta_{t,j} k_{t,j} (v_{t,j} - S_{t,j-1}^T k_{t,j})^T             j = 1, ..., m
    S_t     = S_{t,m},  o_t = q_t^T S_t

with m keys, values and beta of each token, each projection as in DeltaNet (`delta_net`); y likewise.
With beta = 2 two steps are a rotation of the state, and m any orthogonal matrix of m rows; m = 1 is
DeltaNet. Computed as DeltaNet over m T steps. Source: J. Siems, T. Carstensen, A. Zela, F. Hutter, M.
Pontil, R. Grazzi, "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products",
NeurIPS 2025 (arXiv 2502.10297), section 3; there also with gates: `gated_delta_product`.

Axis letters: B batch, H heads, T tokens of a piece, D width of a head, d width, C steps of a chunk, k
taps, m steps for each token.
"""

from typing import ClassVar

import flax.linen as nn

from attnlab.errors import at_least
from attnlab.mixers.delta_net import DeltaNet
from attnlab.mixers.stateful import Shape


class DeltaProduct(DeltaNet):
    """DeltaProduct. The fields not named here are those of `DeltaNet`.

    Attributes:
      count: m.
      largest: c, the bound of beta: 2, for reflections.

    Card: state; Siems et al., DeltaProduct, NeurIPS 2025; time m T d^2; state d^2 / H + k m d;
    path 1; steps m T / C.
    """

    count: int = 2
    largest: float = 2.0

    called: ClassVar[str] = "delta_product"

    @nn.nowrap
    def shape(self) -> Shape:
        """See `Stateful.shape`."""
        at_least(1, self.called, count=self.count)
        return self._shape(self.count)
