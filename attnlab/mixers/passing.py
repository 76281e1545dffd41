"""Mixers that pass a small state on, one vector or a few: a recurrent layer, a causal gated convolution
and the running mean, each with its formula; and what all mixers with a state of one size share.

Axis letters: B batch, T tokens of a piece, d width, H state width, k window.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Capabilities, Mixer
from attnlab.attention.view import CAUSAL, View
from attnlab.config.registry import Part, made
from attnlab.errors import UserError, at_least
from attnlab.layers import CELLS
from attnlab.layers.convolution import GatedConvolution, nothing_before
from attnlab.layers.dense import Dense, inner_dtype, widened

PASSING = Capabilities(
    roles=frozenset({"self"}),
    directions=frozenset({"causal"}),
    dense=False,
    maps="sensitivity",
    positions=frozenset({"embedding"}),
    state="constant",
)
"""The capabilities of a causal mixer with a state of constant size."""


def one_text(mixer: Mixer, view: View) -> None:
    """Checks that a view has one text in each row, since the state of one would continue into the
    next; raises UserError if not.

    Raises:
      UserError: `view` has segments.
    """
    if view.segments is not None:
        raise UserError(
            f"{type(mixer).__name__}: texts that share a row (segments) would share its state; put"
            " one text in a row, or choose a mechanism of attention"
        )


class RecurrentMixer(Mixer):
    """A recurrent layer over the sequence, and a projection if its state has another width.

    A recurrent layer as a mixer: its state has the same size for texts of any length.

        h_t = cell(h_{t-1}, x_t)            cell: LSTM, GRU or tanh, see `layers.recurrent`
        y_t = h_t W_o                       where the state has another width than y; else y_t = h_t

    Padding does not change the state. In a block with a residual connection this replaces
    attention by a recurrent layer, as in M. X. Chen et al., "The Best of Both Worlds: Combining
    Recent Advances in Neural Machine Translation", ACL 2018.

    Attributes:
      cell: "lstm", "gru" or "tanh", or a layer of your own.
      state: H, the width of the state; 0 for that of the output.

    Card: recurrent; Chen et al., The Best of Both Worlds, ACL 2018; time T d H + T H^2; state H;
    path T; steps T.
    """

    cell: Part = "lstm"
    state: int = 0

    parts = {"cell": CELLS}
    capabilities = PASSING

    def setup(self) -> None:
        self.layer = made(CELLS, self.cell)(width=self.size, name="cell")
        if self.size != self.width:
            self.out = Dense(self.width, use_bias=False)

    @property
    @nn.nowrap
    def size(self) -> int:
        """H."""
        return self.state or self.width

    def begin(self, rows: int, room: int, dtype: Any) -> Any:
        """See `Mixer.begin`: zeros."""
        return self.layer.State.zeros(rows, self.size, dtype)

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, Any]:
        """See `Mixer.mix`."""
        one_text(self, view)
        self.record_sensitivity(x, view, state)
        y, state = self.layer(x, view.valid, state)
        return (y if self.size == self.width else self.out(y)), state


class ConvolutionMixer(Mixer):
    """A causal gated convolution (Dauphin et al. 2017).

    A causal gated convolution as a mixer: its state is the last k - 1 tokens.

        A_t, B_t = the halves of  b + sum_j x_{t-j} W_j          j = 0, ..., k - 1, over the real tokens; zeros before the first
        y_t      = A_t * sigmoid(B_t)

    W is normalised and starts as in `layers.convolution`. Padding is skipped, so a window has the
    last k real tokens; y is 0 at padding. Source: Y. Dauphin, A. Fan, M. Auli, D. Grangier,
    "Language Modeling with Gated Convolutional Networks", ICML 2017, equation 1.

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


@flax.struct.dataclass
class Sums:
    """The sum [B,d] of the tokens so far, and how many there were [B]; in the inner precision."""

    total: jax.Array
    count: jax.Array


class Average(Mixer):
    """The running mean of the tokens so far, and a gate (Zhang et al. 2018).

    Average attention (Zhang et al. 2018): the running mean of the tokens so far and a gate, in
    place of a causal self-attention; a control, with a state of one size.

        g_t = FFN(1/t (x_1 + ... + x_t))                FFN(a) = relu(a W_1 + b_1) W_2 + b_2, or a itself
        i_t, f_t = sigmoid([x_t ; g_t] W + b)           y_t = i_t * x_t + f_t * g_t

    The map that is recorded is that of the mean, 1/t for every token up to t, before the FFN and
    the gate. t counts real tokens: padding adds nothing to the mean. Cost: 4 T d F FLOPs for the
    FFN of hidden width F and 8 T d^2 for the gates; the means take 2 T d. State: d numbers and a
    count. Source: B. Zhang, D. Xiong, J. Su, "Accelerating Neural Transformer via an Average
    Attention Network", ACL 2018 (arXiv 1805.00631), equations 5-7. The residual connection and the
    norm around it, equation 8, are those of the block.

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
