"""RWKV-7 (Peng et al. 2025): a delta rule whose decay, learning rate, and keys to erase and to write
are vectors of their own.

    x^c_t = x_t + (x_{t-1} - x_t) * mu_c                        c: r, w, k, v, a, g; the token before, zeros at first
    r, k, v = x^r W_r,  x^k W_k,  x^v W_v
    log w_t = -e^{-1/2} sigmoid(w_0 + tanh(x^w W_1) W_2)        so that w is in (0.545, 1); [H,D]
    a_t     = sigmoid(a_0 + x^a A_1 A_2)                        in (0, 1): the rate of learning; [H,D]
    kappa_t = unit(k_t * xi),  k_t <- k_t * (1 + (a_t - 1) * alpha)       unit: each head of length 1
    S_t     = Diag(w_t) S_{t-1} - (a_t * kappa_t)(kappa_t^T S_{t-1}) + k_t v_t^T,    o_t = r_t^T S_t
    y       = ((GroupNorm(o) + (sum_d r_t k_t rho) v_t) * (sigmoid(x^g G_1) G_2)) W_o     groups are heads, eps 64e-5

What is erased is read from the state before its decay. mu, xi, alpha, rho, w_0 and a_0 are learned and
start at 1/2, 0.71, 1, -0.04, evenly from -6 to 0 (in each head), and 0; all matrices as other
projections of this package, W_2 and A_2 at 0. Scalar w, a = w beta and k = beta kappa: Gated DeltaNet.
Source: B. Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution", COLM 2025 (arXiv
2503.14456), section 4. What is left out: values mixed with those of the first layer, which a mixer
does not see; the authors' mu differ by channel and layer, and W_o starts at 0 there.

Axis letters: B batch, H heads, T tokens of a piece, D width of a head, d width, C tokens of a chunk.
"""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.protocol import head_width
from attnlab.errors import at_least
from attnlab.layers.dense import joined, split, unbiased, widened
from attnlab.layers.history import token_before
from attnlab.layers.norms import LayerNorm
from attnlab.mixers.stateful import Shape, Stateful, Steps, unit

FASTEST = math.exp(-0.5)  # -log of the least w
EPSILON = 64e-5


class Rwkv7(Stateful):
    """RWKV-7's time mixing. The fields not named here are those of `Stateful`.

    Attributes:
      heads: H; must divide the width.
      rank: of the projections to w, a and the gate.

    Card: state; Peng et al., RWKV-7, COLM 2025; time T d^2; state d^2 / H; path 1; steps T / C.
    """

    heads: int = 4
    rank: int = 32

    def setup(self) -> None:
        """Checks that `rank` is at least 1 (raises UserError if not), and creates all projections,
        those of low rank, and the vectors of RWKV-7.
        """
        at_least(1, "rwkv7", rank=self.rank)
        shape, constant, zeros = self.shape(), nn.initializers.constant, nn.initializers.zeros
        self.shift = self.param("shift", constant(0.5), (6, self.width))
        self.w_read, self.w_key, self.w_value, self.w_gate, self.out = unbiased(5, self.width)
        self.low_decay, self.low_rate, self.low_gate = unbiased(3, self.rank)
        self.w_decay, self.w_rate = unbiased(2, self.width, kernel_init=zeros)
        self.decay = self.param("decay", _decays, (shape.heads, shape.depth))
        self.rate = self.param("rate", zeros, (shape.heads, shape.depth))
        self.erased = self.param("erased", constant(0.71), (shape.heads, shape.depth))
        self.written = self.param("written", constant(1.0), (shape.heads, shape.depth))
        self.bonus = self.param("bonus", constant(-0.04), (shape.heads, shape.depth))
        self.scale = self.param("scale", constant(1.0), (self.width,))
        self.offset = self.param("offset", zeros, (self.width,))
        self.norm = LayerNorm(EPSILON, use_scale=False, use_bias=False)

    @nn.nowrap
    def shape(self) -> Shape:
        """See `Stateful.shape`; the token before is kept like the input of two taps."""
        depth = head_width("rwkv7", self.width, self.heads)
        return Shape(self.heads, depth, depth, 2, self.width, erases=True)

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the recurrence for x [B,T,d], made of mixes of each token with the
        real one before (`recent` [B,1,d] before the first; `valid` [B,T]: real tokens): r as
        queries, keys, values, log decay, vectors to erase with, bonus and gate for the output, and
        the next `recent`; `positions` are not used. See `Stateful.steps`.
        """
        previous, recent = token_before(x, recent, valid)
        r, w, k, v, a, gate = (x + (previous - x) * mu for mu in self.shift)
        r, k, v = (
            widened(split(projected, self.heads))
            for projected in (self.w_read(r), self.w_key(k), self.w_value(v))
        )
        w, a = (
            widened(split(projected, self.heads)) + widened(start)[:, None]
            for projected, start in (
                (self.w_decay(jnp.tanh(self.low_decay(w))), self.decay),
                (self.w_rate(self.low_rate(a)), self.rate),
            )
        )
        a = jax.nn.sigmoid(a)
        kappa = unit(k * widened(self.erased)[:, None])
        k = k * (1.0 + (a - 1.0) * widened(self.written)[:, None])
        bonus = (r * k * widened(self.bonus)[:, None]).sum(axis=-1, keepdims=True) * v
        z = self.w_gate(jax.nn.sigmoid(self.low_gate(gate)))
        return Steps(r, k, v, -FASTEST * jax.nn.sigmoid(w), -kappa, (bonus, z), recent, a * kappa)

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        bonus, z = extras
        y = joined(self.norm(o)) * widened(self.scale) + widened(self.offset) + joined(bonus)
        return self.out((y * widened(z)).astype(x.dtype))


def _decays(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """w_0 [H,D], evenly from -6 to 0 in each head."""
    return jnp.broadcast_to(jnp.linspace(-6.0, 0.0, shape[1]), shape)
