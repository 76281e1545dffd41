"""Gated DeltaProduct (Siems et al. 2025): DeltaProduct on a state that forgets, once for each token.

    S_{t,0} = alpha_t S_{t-1}
    S_{t,j} = S_{t,j-1} + beta_{t,j} k_{t,j} (v_{t,j} - S_{t,j-1}^T k_{t,j})^T             j = 1, ..., m
    S_t     = S_{t,m},  o_t = q_t^T S_t

with the m keys, values and beta of DeltaProduct (`delta_product`), and alpha, y and the widths of keys
and values of Gated DeltaNet (`gated_delta_net`). alpha = 1 is DeltaProduct, m = 1 Gated DeltaNet.
Computed as Gated DeltaNet over m T steps with the gate before the first step of each token. Source:
J. Siems, T. Carstensen, A. Zela, F. Hutter, M. Pontil, R. Grazzi, "DeltaProduct: Improving
State-Tracking in Linear RNNs via Householder Products", NeurIPS 2025 (arXiv 2502.10297), section 3.

Axis letters: B batch, H heads, T tokens of a piece, D width of keys of a head, E of values, d width,
C steps of a chunk, k taps, m steps for each token.
"""

from typing import ClassVar

from attnlab.mixers.delta_product import DeltaProduct
from attnlab.mixers.gated_delta_net import GatedDeltaNet


class GatedDeltaProduct(DeltaProduct, GatedDeltaNet):
    """Gated DeltaProduct. The fields are those of `DeltaProduct` and of `GatedDeltaNet`.

    Card: state; Siems et al., DeltaProduct, NeurIPS 2025; time m T d^2; state d^2 / H + k m d;
    path 1; steps m T / C.
    """

    called: ClassVar[str] = "gated_delta_product"
