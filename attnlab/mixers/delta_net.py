"""DeltaNet (Yang et al. 2024): a state that corrects itself. It reads what it holds under a key and
writes the difference from the new value, where linear attention would add.

    q, k   = unit(a(conv(x W_q))) / sqrt(D),  unit(a(conv(x W_k)))              unit: of length 1; a: silu
    v      = a(conv(x W_v)),  beta_t = c sigmoid(x W_b)                         one number in (0, c) for each head
    S_t    = S_{t-1} + beta_t k_t (v_t - S_{t-1}^T k_t)^T,  o_t = q_t^T S_t     = (I - beta k k^T) S_{t-1} + beta k v^T
    y      = RMSNorm(o) W_o                                                     the norm over each head

A step is one of gradient descent on |S^T k_t - v_t|^2 / 2 at the rate beta_t: beta = 1 overwrites what
stands under k_t, beta = 2 reflects the state, as state tracking needs. Source: S. Yang, B. Wang, Y.
Zhang, Y. Shen, Y. Kim, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length",
NeurIPS 2024 (arXiv 2406.06484), section 3, with k = 4 taps; c = 2 as in R. Grazzi et al., "Unlocking
State-Tracking in Linear RNNs Through Negative Eigenvalues", ICLR 2025.

Axis letters: B batch, H heads, T tokens of a piece, D width of keys of a head, E of values, d width,
C tokens of a chunk, k taps.
"""

from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.protocol import head_width
from attnlab.errors import UserError
from attnlab.layers.convolution import ShortConvolution
from attnlab.layers.dense import Dense, joined, split, widened
from attnlab.layers.norms import GatedNorm, RMSNorm
from attnlab.mixers.stateful import Shape, Stateful, Steps, unit

EPSILON = 1e-5  # of the norm over a head


class DeltaNet(Stateful):
    """DeltaNet, and the base of mixers that add gates or steps to it (`keys`, `values`, `gates`,
    `outputs`). The fields not named here are those of `Stateful`.

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


def _gate_first_step(g: jax.Array, micro: int) -> jax.Array:
    """g [B,H,T] or [B,H,T,D] at the first of `micro` steps of each token, 0 at the others."""
    g = jnp.expand_dims(g, 3)
    padded = jnp.pad(g, [(0, 0)] * 3 + [(0, micro - 1)] + [(0, 0)] * (g.ndim - 4))
    return padded.reshape(*g.shape[:2], -1, *g.shape[4:])
