"""Mixers by the delta rule: a state that corrects itself, plain, with gates by which it forgets, and with
several steps for each token. The class of each has its formula and its source.

Axis letters: B batch, H heads, T tokens of a piece, D width of keys of a head, E of values, d width,
C steps of a chunk, k taps, m steps for each token.
"""

from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.protocol import head_width
from attnlab.errors import UserError, at_least
from attnlab.layers.convolution import ShortConvolution
from attnlab.layers.dense import Dense, joined, split, unbiased, widened
from attnlab.layers.norms import GatedNorm, RMSNorm
from attnlab.mixers.decaying import first_steps, rates
from attnlab.mixers.stateful import Shape, Stateful, Steps, unit

EPSILON = 1e-5  # of the norm over a head


class DeltaNet(Stateful):
    """DeltaNet, and the base of mixers that add gates or steps to it (`keys`, `values`, `gates`,
    `outputs`). The fields not named here are those of `Stateful`.

    DeltaNet (Yang et al. 2024): a state that corrects itself. It reads what it holds under a key
    and writes the difference from the new value, where linear attention would add.

        q, k   = unit(a(conv(x W_q))) / sqrt(D),  unit(a(conv(x W_k)))              unit: of length 1; a: silu
        v      = a(conv(x W_v)),  beta_t = c sigmoid(x W_b)                         one number in (0, c) for each head
        S_t    = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T,  o_t = q_t^T S_t     = (I - beta k k^T) S_{t-1} + beta k v^T
        y      = RMSNorm(o) W_o                                                     the norm over each head

    A step is one of gradient descent on |S^T k_t - v_t|^2 / 2 at the rate beta_t: beta = 1
    overwrites what stands under k_t, beta = 2 reflects the state, as state tracking needs. Source:
    S. Yang, B. Wang, Y. Zhang, Y. Shen, Y. Kim, "Parallelizing Linear Transformers with the Delta
    Rule over Sequence Length", NeurIPS 2024 (arXiv 2406.06484), section 3, with k = 4 taps; c = 2
    as in R. Grazzi et al., "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues",
    ICLR 2025.

    Attributes:
      heads: H; must divide the widths of keys and values.
      kernel: k, taps of the short convolutions; 1 for none but a weight.
      activation: a; "none" for x itself, which the paper does not have. silu leaves hardly any
        number below 0, so that narrow keys are much alike: with 16 channels, runs with it did not
        learn to find pairs, and one without it did (`docs/results/states.md`).
      largest: c, above 0 and at most 2.

    Card: state; Yang et al., Parallelizing Linear Transformers with the Delta Rule, NeurIPS 2024;
    time T d^2; state d^2 / H + k d; path 1; steps T / C.
    """

    heads: int = 4
    kernel: int = 4
    activation: Literal["silu", "none"] = "silu"
    largest: float = 1.0

    called: ClassVar[str] = "delta_net"
    output_gate: ClassVar[Literal["silu", "sigmoid"] | None] = None

    def setup(self) -> None:
        """Checks `largest` and `kernel` (raises UserError if they are out of range), and creates
        the projections, the short convolution and the norm.
        """
        if not 0.0 < self.largest <= 2.0 or self.kernel < 1:
            raise UserError(
                f"{self.called}: largest={self.largest} must be above 0 and at most 2, where a step"
                f" still shrinks the state, and kernel={self.kernel} at least 1"
            )
        keys, values, micro = self.keys(), self.values(), self.shape().micro
        self.w_query = Dense(keys, use_bias=False)
        self.w_key = Dense(micro * keys, use_bias=False)
        self.w_value = Dense(micro * values, use_bias=False)
        self.w_rate = Dense(micro * self.heads, use_bias=False)
        self.convolution = ShortConvolution(self.kernel, self.activation)
        gate = self.output_gate
        self.norm: Any = GatedNorm(gate, epsilon=EPSILON) if gate else RMSNorm(EPSILON)
        self.out = Dense(self.width, use_bias=False)

    @nn.nowrap
    def keys(self) -> int:
        """The width of the keys of all heads."""
        return self.width

    @nn.nowrap
    def values(self) -> int:
        """The width of the values of all heads."""
        return self.width

    @nn.nowrap
    def shape(self) -> Shape:
        """See `Stateful.shape`."""
        return self._shape(1)

    @nn.nowrap
    def _shape(self, micro: int) -> Shape:
        """Returns the sizes (`Shape`) of a state that is updated in `micro` steps for each token;
        raises UserError if heads do not divide the widths of keys and values.
        """
        keys, values = self.keys(), self.values()
        return Shape(
            self.heads,
            head_width(self.called, keys, self.heads, "width of the keys"),
            head_width(self.called, values, self.heads, "width of the values"),
            self.kernel,
            keys + micro * (keys + values),
            erases=True,
            micro=micro,
        )

    def gates(self, x: jax.Array) -> jax.Array | None:
        """g of `recur` for x [B,T,d]; None: nothing is forgotten."""
        return None

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the delta rule for x [B,T,d]: scaled unit queries, unit keys,
        values and their rate beta, beta k to erase with, the gates of a subclass, and the next
        `recent`, the last inputs of the short convolution; `valid` [B,T]: real tokens; `positions`
        are not used. See `Stateful.steps`; with m steps for each token the gate is before the
        first.
        """
        keys, micro = self.keys(), self.shape().micro
        mixed, recent = self.convolution(
            jnp.concatenate([self.w_query(x), self.w_key(x), self.w_value(x)], axis=-1),
            recent,
            valid,
        )
        q, k, v = jnp.split(mixed, (keys, (1 + micro) * keys), axis=-1)
        k, v, beta = (
            split(projected.reshape(len(x), micro * x.shape[1], -1), self.heads)
            for projected in (k, v, self.w_rate(x))
        )
        q, k = unit(split(q, self.heads)) * (keys // self.heads) ** -0.5, unit(k)
        beta, g = self.largest * jax.nn.sigmoid(widened(beta)), self.gates(x)
        if micro > 1:
            q = jnp.repeat(q, micro, axis=2)
            g = g if g is None else _gate_first_step(g, micro)
        return Steps(q, k, v, g, beta * k, recent=recent, scale=beta)

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        return self.out(joined(self.norm(o)).astype(x.dtype))


class GatedDeltaNet(DeltaNet):
    """Gated DeltaNet. The fields not named here are those of `DeltaNet`.

    Gated DeltaNet (Yang et al. 2025): the delta rule on a state that forgets; each head forgets as
    the token says.

        q, k, v, beta as in DeltaNet (`delta_net`); keys are `key_share` of the width, values `expansion` times as wide
        alpha_t = e^{-e^A softplus(x W_a + b)}                                  one number in (0, 1) for each head
        S_t     = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T     o_t = q_t^T S_t
        y       = (silu(x W_g) * RMSNorm(o)) W_o                                the norm over each head

    e^A starts uniform in [1, 16] (the authors' code: [0, 16], whose end forgets nothing),
    softplus(b) log-uniform in [1e-3, 0.1]. alpha = 1 is DeltaNet. Source: S. Yang, J. Kautz, A.
    Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", ICLR 2025 (arXiv
    2412.06464), equation 10, with the gates of Mamba-2.

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


class Kda(DeltaNet):
    """Kimi delta attention (KDA). The fields not named here are those of `DeltaNet`.

    Kimi delta attention (Kimi Team 2025): the delta rule on a state each of whose rows forgets as
    the token says.

        q, k, v, beta as in DeltaNet (`delta_net`)
        g_t = -e^A softplus(x W_1 W_2 + b)                                                [H,D]; A one number for each head
        S_t = (I - beta_t k_t k_t^T) Diag(e^{g_t}) S_{t-1} + beta_t k_t v_t^T             o_t = q_t^T S_t
        y   = (sigmoid(x W_3 W_4 + c) * RMSNorm(o)) W_o                                   the norm over each head

    First the state is decayed, then corrected. W_1 and W_3 are as wide as a head, or `rank`. e^A
    starts uniform in [1, 16], softplus(b) log-uniform in [1e-3, 0.1]. Gates alike for all
    channels: Gated DeltaNet. Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention
    Architecture", 2025 (arXiv 2510.26692), equation 1 and section 4; W_2 and b are not shared by
    heads.

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


class DeltaProduct(DeltaNet):
    """DeltaProduct. The fields not named here are those of `DeltaNet`.

    DeltaProduct (Siems et al. 2025): DeltaNet that takes m steps for each token, so that what a
    token does to the state is a product of m reflections rather than one.

        S_{t,0} = S_{t-1}
        S_{t,j} = S_{t,j-1} + beta_{t,j} k_{t,j} (v_{t,j} - S_{t,j-1}^T k_{t,j})^T             j = 1, ..., m
        S_t     = S_{t,m},  o_t = q_t^T S_t

    with m keys, values and beta of each token, each projection as in DeltaNet (`delta_net`); y
    likewise. With beta = 2 two steps are a rotation of the state, and m any orthogonal matrix of m
    rows; m = 1 is DeltaNet. Computed as DeltaNet over m T steps. Source: J. Siems, T. Carstensen,
    A. Zela, F. Hutter, M. Pontil, R. Grazzi, "DeltaProduct: Improving State-Tracking in Linear
    RNNs via Householder Products", NeurIPS 2025 (arXiv 2502.10297), section 3; there also with
    gates: `gated_delta_product`.

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


class GatedDeltaProduct(DeltaProduct, GatedDeltaNet):
    """Gated DeltaProduct. The fields are those of `DeltaProduct` and of `GatedDeltaNet`.

    Gated DeltaProduct (Siems et al. 2025): DeltaProduct on a state that forgets, once for each
    token.

        S_{t,0} = alpha_t S_{t-1}
        S_{t,j} = S_{t,j-1} + beta_{t,j} k_{t,j} (v_{t,j} - S_{t,j-1}^T k_{t,j})^T             j = 1, ..., m
        S_t     = S_{t,m},  o_t = q_t^T S_t

    with the m keys, values and beta of DeltaProduct (`delta_product`), and alpha, y and the widths
    of keys and values of Gated DeltaNet (`gated_delta_net`). alpha = 1 is DeltaProduct, m = 1
    Gated DeltaNet. Computed as Gated DeltaNet over m T steps with the gate before the first step
    of each token. Source: J. Siems, T. Carstensen, A. Zela, F. Hutter, M. Pontil, R. Grazzi,
    "DeltaProduct: Improving State-Tracking in Linear RNNs via Householder Products", NeurIPS 2025
    (arXiv 2502.10297), section 3.

    Card: state; Siems et al., DeltaProduct, NeurIPS 2025; time m T d^2; state d^2 / H + k m d;
    path 1; steps m T / C.
    """

    called: ClassVar[str] = "gated_delta_product"


def _gate_first_step(g: jax.Array, micro: int) -> jax.Array:
    """g [B,H,T] or [B,H,T,D] at the first of `micro` steps of each token, 0 at the others."""
    g = jnp.expand_dims(g, 3)
    padded = jnp.pad(g, [(0, 0)] * 3 + [(0, micro - 1)] + [(0, 0)] * (g.ndim - 4))
    return padded.reshape(*g.shape[:2], -1, *g.shape[4:])
