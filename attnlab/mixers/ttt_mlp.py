"""TTT-MLP (Sun et al. 2024): TTT-Linear (`ttt_linear`) whose inner model has a hidden layer.

    f(x) = x + LayerNorm(gelu(x W_1 + u_1) W_2 + u_2)                           the hidden layer is `expansion` times as wide as a head

W_1, u_1, W_2 and u_2 learn as W and u do there, the slope going backward through W_2 as it was at the
beginning of the mini-batch. r is 0.1. Source: Y. Sun et al., "Learning to (Learn at Test Time): RNNs
with Expressive Hidden States", 2024 (arXiv 2407.04620), section 2.7; the authors raise r from 0.01
in the first tenth of training, here it is the same all along.

Axis letters: B batch, H heads, T tokens of a piece, D width of a head, d width, b tokens of a
mini-batch, C tokens that are computed at once, k taps.
"""

from typing import ClassVar

import flax.linen as nn

from attnlab.errors import at_least
from attnlab.mixers.ttt_linear import TttLinear


class TttMlp(TttLinear):
    """TTT-MLP. The fields not named here are those of `TttLinear`.

    Attributes:
      largest: r; the rate of learning is below r / D.
      expansion: the width of the hidden layer, in widths of a head.

    Card: state; Sun et al., Learning to (Learn at Test Time), 2024; time T d^2;
    state d^2 / H + k d; path 1; steps T / C.
    """

    largest: float = 0.1
    expansion: int = 4

    called: ClassVar[str] = "ttt_mlp"

    @nn.nowrap
    def widths(self) -> tuple[int, ...]:
        """See `TttLinear.widths`."""
        at_least(1, self.called, expansion=self.expansion)
        depth, _ = super().widths()
        return depth, self.expansion * depth, depth
