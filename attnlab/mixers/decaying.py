"""Linear attention whose state decays: by a number for each head or for each channel of the keys,
constant or as the token says. The class of each has its formula and its source.

Axis letters: B batch, H heads, T tokens of a piece, D width of keys of a head, E of values, d width;
of Mamba-2 N rows of the state, P width of a head.
"""

import dataclasses
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import head_width
from attnlab.config.registry import Part, made
from attnlab.errors import UserError
from attnlab.layers.convolution import ShortConvolution
from attnlab.layers.dense import Dense, inner_dtype, joined, split, unbiased, widened
from attnlab.layers.norms import GatedNorm, LayerNorm, RMSNorm
from attnlab.mixers.stateful import LINEAR, Shape, State, Stateful, Steps

FASTEST, SLOWEST, FLOOR = 0.1, 1e-3, 1e-4  # of dt of Mamba-2 at the start


class Retention(Stateful):
    """Retention with H heads (RetNet). The fields not named here are those of `Stateful`.

    Retention (Sun et al. 2023): linear attention whose heads forget, each at its own rate.

        q, k, v = R_t x W_q,  R_t x W_k / sqrt(D),  x W_v         R_t rotates by the position; values are `expansion` times as wide
        S_t     = gamma_h S_{t-1} + k_t v_t^T,  o_t = q_t^T S_t   gamma_h = 1 - 2^(-5-h), h = 0, ..., H - 1
        y       = (silu(x W_g) * GroupNorm(o)) W_o                one group for each head, without learned numbers

    A token at distance n weighs gamma_h^n. The same in parallel: O = (Q K^T * Dm) V, Dm_ij =
    gamma^(i-j) for j <= i. Source: Y. Sun et al., "Retentive Network: A Successor to Transformer
    for Large Language Models", 2023 (arXiv 2307.08621), equations 1 to 8. The paper's
    normalisation of scores for the sake of precision is left out: it scales rows, which GroupNorm
    undoes. Its rotation is xPos, whose growing factors gamma takes over.

    Attributes:
      heads: H; must divide the width.
      expansion: the width of all values, in widths; 2 in the paper.
      positions: a scheme that acts on queries and keys.

    Card: state; Sun et al., Retentive Network, 2023; time T d^2; state d^2 / H; path 1;
    steps T / C.
    """

    heads: int = 4
    expansion: int = 2
    positions: Part = "rope"

    parts = {"positions": POSITIONS}
    capabilities = dataclasses.replace(LINEAR, positions=frozenset({"query_key"}))

    def setup(self) -> None:
        """Creates the projections of query, key, value, gate and output, the position scheme, and
        the norm.
        """
        wide = self.expansion * self.width
        self.w_query, self.w_key, self.out = unbiased(3, self.width)
        self.w_value, self.w_gate = unbiased(2, wide)
        self.scheme = made(POSITIONS, self.positions)(name="positions")
        self.norm = LayerNorm(use_scale=False, use_bias=False)

    @nn.nowrap
    def shape(self) -> Shape:
        """See `Stateful.shape`."""
        depth = head_width("retention", self.width, self.heads)
        return Shape(self.heads, depth, self.expansion * depth)

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the recurrence for x [B,T,d]: queries and scaled keys rotated by
        `positions` [T] or [B,T], values, and the constant log decay of each head; `valid` and
        `recent` are not used. See `Stateful.steps`.
        """
        q, k, v = (split(w(x), self.heads) for w in (self.w_query, self.w_key, self.w_value))
        k = k * k.shape[-1] ** -0.5
        gates = jnp.asarray(np.log(decays(self.heads)), inner_dtype(x))
        g = jnp.broadcast_to(gates[None, :, None], (1, self.heads, x.shape[1]))
        return Steps(self.scheme.of_query(q, positions), self.scheme.of_key(k, positions), v, g)

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        gated = joined(self.norm(o)).astype(x.dtype) * jax.nn.silu(self.w_gate(x))
        return self.out(gated)


def decays(heads: int) -> np.ndarray:
    """gamma_h [H], float64."""
    return 1.0 - 2.0 ** (-5.0 - np.arange(heads))


class GatedLinear(Stateful):
    """Gated linear attention (GLA). The fields not named here are those of `Stateful`.

    Gated linear attention (Yang et al. 2024): linear attention that forgets each channel of the
    keys as the token says.

        q, k, v = x W_q / sqrt(D),  x W_k,  x W_v                   keys are `key_share` of the width, values the width
        alpha_t = sigmoid(x W_1 W_2 + b)^(1 / tau)                  in (0,1)^D for each head; W_1 of low rank
        S_t     = Diag(alpha_t) S_{t-1} + k_t v_t^T,  o_t = q_t^T S_t
        y       = (silu(x W_r + b_r) * RMSNorm(o)) W_o              the norm over each head

    Source: S. Yang, B. Wang, Y. Shen, R. Panda, Y. Kim, "Gated Linear Attention Transformers with
    Hardware-Efficient Training", ICML 2024 (arXiv 2312.06635), equations 3 to 6; tau = 16, rank 16
    and 4 heads as there.

    Attributes:
      heads: H; must divide the width and the width of the keys.
      key_share: the width of all keys, in widths.
      rank: of the projection to gates.
      temperature: tau; the larger, the less is forgotten.

    Card: state; Yang et al., Gated Linear Attention, ICML 2024; time T d^2; state d^2 / H; path 1;
    steps T / C.
    """

    heads: int = 4
    key_share: float = 0.5
    rank: int = 16
    temperature: float = 16.0

    def setup(self) -> None:
        """Checks `temperature` and `rank` (raises UserError if they are not above 0), and creates
        the projections, the forget gate of low rank and the gated norm.
        """
        if self.temperature <= 0 or self.rank < 1:
            raise UserError(
                f"gated_linear: temperature={self.temperature} and rank={self.rank} must be above 0"
            )
        keys = self._keys()
        self.w_query, self.w_key = unbiased(2, keys)
        self.w_value, self.out = unbiased(2, self.width)
        self.w_low, self.w_forget = Dense(self.rank, use_bias=False), Dense(keys)
        self.w_gate = Dense(self.width)
        self.norm = GatedNorm()

    @nn.nowrap
    def _keys(self) -> int:
        return round(self.key_share * self.width)

    @nn.nowrap
    def shape(self) -> Shape:
        """See `Stateful.shape`."""
        depth = head_width("gated_linear", self._keys(), self.heads, "key_share * width")
        return Shape(self.heads, depth, head_width("gated_linear", self.width, self.heads))

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the recurrence for x [B,T,d]: scaled queries, keys, values, and
        the log forget gate of each key channel, log sigmoid(x W_1 W_2 + b) / temperature; the other
        arguments are not used. See `Stateful.steps`.
        """
        projections = self.w_query(x), self.w_key(x), self.w_value(x), self.w_forget(self.w_low(x))
        q, k, v, f = (split(projected, self.heads) for projected in projections)
        g = jax.nn.log_sigmoid(widened(f)) / self.temperature
        return Steps(q * q.shape[-1] ** -0.5, k, v, g)

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        return self.out(joined(self.norm(o, split(self.w_gate(x), self.heads))).astype(x.dtype))


class Hgrn(Stateful):
    """HGRN2. The fields not named here are those of `Stateful`.

    HGRN2 (Qin et al. 2024): a gated recurrence whose gates are the keys too: what is forgotten
    makes room for what is written.

        f_t = l + (1 - l) sigmoid(x W_f)                        in (0,1)^D for each head
        q   = silu(x W_q),  v = x W_i,  k_t = 1 - f_t
        S_t = Diag(f_t) S_{t-1} + k_t v_t^T,  o_t = q_t^T S_t
        y   = RMSNorm(o) W_o                                    the norm over all heads together

    Source: Z. Qin et al., "HGRN2: Gated Linear RNNs with State Expansion", COLM 2024 (arXiv
    2404.07904), equations 5 to 8. There l is learned, larger in higher layers and 0 in the first;
    a mixer does not know its layer, so here it is a number of the config, which `by_layer` may
    vary.

    Attributes:
      heads: H; must divide the width.
      least: l, the least that is kept of a channel at each token, from 0 to less than 1.

    Card: state; Qin et al., HGRN2, COLM 2024; time T d^2; state d^2 / H; path 1; steps T / C.
    """

    heads: int = 4
    least: float = 0.0

    def setup(self) -> None:
        """Checks that `least` is at least 0 and below 1 (raises UserError if not), and creates the
        projections and the norm.
        """
        if not 0.0 <= self.least < 1.0:
            raise UserError(f"hgrn: least={self.least}, must be at least 0 and less than 1")
        self.w_query, self.w_forget, self.w_value, self.out = unbiased(4, self.width)
        self.norm = RMSNorm()

    @nn.nowrap
    def shape(self) -> Shape:
        """See `Stateful.shape`."""
        depth = head_width("hgrn", self.width, self.heads)
        return Shape(self.heads, depth, depth)

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the recurrence for x [B,T,d]: queries silu(x W_q), the log of the
        forget gate f (f at least l = `least`), 1 - f in place of keys, and values; the other
        arguments are not used. See `Stateful.steps`; 1 - f = (1 - l) sigmoid(-x W_f).
        """
        q, f, v = (split(w(x), self.heads) for w in (self.w_query, self.w_forget, self.w_value))
        f = widened(f)
        g = jax.nn.log_sigmoid(f)
        if self.least:
            g = jnp.logaddexp(math.log(self.least), math.log1p(-self.least) + g)
        return Steps(jax.nn.silu(q), (1.0 - self.least) * jax.nn.sigmoid(-f), v, g)

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        return self.out(self.norm(joined(o)).astype(x.dtype))


class Mamba(Stateful):
    """Mamba-2. The fields not named here are those of `Stateful`.

    Mamba-2 (Dao and Gu 2024): a state-space layer whose decay is one number for each head and
    token.

        z, c, dt  = x W_in                                          z and the first part of c are `expansion` widths wide
        v, B, C   = silu(convolution(c))                            k taps for each channel; B and C [N] are shared by all heads
        dt_t      = softplus(dt + b),  a_t = e^{-dt_t e^A}          one number for each head
        S_t       = a_t S_{t-1} + dt_t B_t v_t^T                    y_t = C_t^T S_t + D_h v_t
        out       = RMSNorm(y * silu(z)) W_o                        the norm over all heads together

    e^A starts uniform in [1, 16], dt log-uniform in [1e-3, 0.1] (through b), D from 1. Source: T.
    Dao, A. Gu, "Transformers are SSMs: Generalized Models and Efficient Algorithms Through
    Structured State Space Duality", ICML 2024 (arXiv 2405.21060), sections 5 to 7, with one group,
    k = 4, N = 128 and heads of 64 as in the paper.

    Attributes:
      state: N.
      head_width: P; must divide `expansion` widths.
      expansion: the width of all values, in widths.
      kernel: k.

    Card: state; Dao and Gu, Transformers are SSMs, ICML 2024; time T d^2 + T d N; state d N;
    path 1; steps T / C.
    """

    state: int = 128
    head_width: int = 64
    expansion: int = 2
    kernel: int = 4

    def setup(self) -> None:
        """Creates the input projection, the short convolution, the rates, first step sizes and skip
        of each head, the gated norm and the output projection; raises UserError as `shape` does.
        """
        shape = self.shape()
        wide = self.expansion * self.width
        self.w_in = Dense(wide + shape.channels + shape.heads, use_bias=False)
        self.convolution = ShortConvolution(self.kernel, use_bias=True)
        self.rate = self.param("rate", rates, (shape.heads,))
        self.step = self.param("step", first_steps, (shape.heads,))
        self.skip = self.param("skip", nn.initializers.ones, (shape.heads,))
        self.norm = GatedNorm(first="gate")
        self.out = Dense(self.width, use_bias=False)

    @nn.nowrap
    def shape(self) -> Shape:
        """Returns the sizes of the state, a `Shape`: heads of `head_width`, `state` rows; raises
        UserError if the head width does not divide expansion * width, or `state` or `kernel` is
        below 1. See `Stateful.shape`.
        """
        wide = self.expansion * self.width
        if self.head_width < 1 or wide % self.head_width or min(self.state, self.kernel) < 1:
            raise UserError(
                f"mamba: expansion * width = {wide} must be divisible by head_width="
                f"{self.head_width}, and state={self.state} and kernel={self.kernel} be at least 1"
            )
        return Shape(
            wide // self.head_width, self.state, self.head_width, self.kernel, wide + 2 * self.state
        )

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the recurrence for x [B,T,d], which hold C as queries, B as keys,
        values v and their scale dt, the log decay -dt e^A, z for the output, and the next `recent`
        (last inputs of the short convolution); `valid` [B,T]: real tokens; no `positions` are used.
        See `Stateful.steps`; the step dt goes with v, since heads share B.
        """
        shape, wide = self.shape(), self.expansion * self.width
        z, c, dt = jnp.split(self.w_in(x), (wide, wide + shape.channels), axis=-1)
        c, recent = self.convolution(c, recent, valid)
        v, b, c = jnp.split(c, (wide, wide + self.state), axis=-1)
        dt = jax.nn.softplus(widened(dt) + widened(self.step)).transpose(0, 2, 1)
        g = -dt * jnp.exp(widened(self.rate))[:, None]
        v = split(v, shape.heads)
        return Steps(c[:, None], b[:, None], v, g, None, z, recent, scale=dt[..., None])

    def recurrence(
        self, steps: Steps, state: State, valid: jax.Array | None, at_start: bool
    ) -> tuple[jax.Array, Any]:
        """See `Stateful.recurrence`; adds the skip, D v."""
        o, last = super().recurrence(steps, state, valid, at_start)
        return o + widened(self.skip)[:, None, None] * widened(steps.v), last

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        return self.out(self.norm(joined(o), extras).astype(x.dtype))


def rates(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Logarithms of rates drawn uniformly from [1, 16]."""
    return jnp.log(jax.random.uniform(key, shape, minval=1.0, maxval=16.0))


def first_steps(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The inverse of softplus of steps drawn log-uniformly from [SLOWEST, FASTEST]."""
    low, high = math.log(SLOWEST), math.log(FASTEST)
    dt = jnp.maximum(jnp.exp(jax.random.uniform(key, shape, minval=low, maxval=high)), FLOOR)
    return dt + jnp.log(-jnp.expm1(-dt))
