"""A causal gated convolution as a mixer: its state is the last k - 1 tokens.

    A_t, B_t = the halves of  b + sum_j x_{t-j} W_j          j = 0, ..., k - 1, over the real tokens; zeros before the first
    y_t      = A_t * sigmoid(B_t)

W is normalised and starts as in `layers.convolution`. Padding is skipped, so a window has the last
k real tokens; y is 0 at padding. Source: Y. Dauphin, A. Fan, M. Auli, D. Grangier, "Language
Modeling with Gated Convolutional Networks", ICML 2017, equation 1.

Axis letters: B batch, T tokens of a piece, d width, k window.
"""

from typing import Any

import jax

from attnlab.attention.mixer import Mixer
from attnlab.attention.view import CAUSAL, View
from attnlab.layers.convolution import GatedConvolution, nothing_before
from attnlab.mixers.recurrent import PASSING, one_text


class ConvolutionMixer(Mixer):
    """A causal gated convolution (Dauphin et al. 2017).

    Attributes:
      kernel: k, tokens of a window, at least 1.
      dropout: share of the input that training sets to 0.

    Card: convolution; Dauphin et al., Gated Convolutional Networks, ICML 2017; time k T d^2;
    state k d; path T / k; steps 1.
    """

    kernel: int = 4
    dropout: float = 0.0

    capabilities = PASSING

    def setup(self) -> None:
        self.convolution = GatedConvolution(self.width, self.kernel, self.dropout)

    def begin(self, rows: int, room: int, dtype: Any) -> jax.Array:
        """See `Mixer.begin`: the k - 1 tokens before the first are zeros."""
        return nothing_before(rows, self.width, self.kernel, dtype)

    def mix(
        self, x: jax.Array, view: View = CAUSAL, state: Any = None
    ) -> tuple[jax.Array, jax.Array]:
        """Applies a causal gated convolution (k = `kernel` taps, dropout before it) to the real
        tokens of x [B,T,d], which follow `state` [B,k-1,d]; returns y [B,T,d], 0 at padding, and
        the last k - 1 real tokens as new state; raises UserError for segments. See `Mixer.mix`.
        """
        one_text(self, view)
        self.record_sensitivity(x, view, state)
        state = self.begin(len(x), 0, x.dtype) if state is None else state
        return self.convolution.causal(x, state, view.valid)
