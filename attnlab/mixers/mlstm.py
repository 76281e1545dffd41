"""mLSTM (Beck et al. 2024), the part of xLSTM with a matrix as state: an LSTM whose cell holds keys
and values, with an exponential input gate.

    q, k, v = x W_q / sqrt(D),  x W_k,  x W_v                                   keys are `key_share` of the width
    i_t, f_t = e^{x W_i + b_i},  sigmoid(x W_f + b_f)                           one number for each head
    C_t = f_t C_{t-1} + i_t k_t v_t^T,   n_t = f_t n_{t-1} + i_t k_t            o_t = C_t^T q_t / max(|n_t^T q_t|, 1)
    y   = (sigmoid(x W_o) * RMSNorm(o)) W                                       the norm over each head

e^{x W_i} may overflow, so C and n are kept divided by e^{m_t}, m_t = max(log f_t + m_{t-1}, log i_t):

    C'_t = e^{log f_t + m_{t-1} - m_t} C'_{t-1} + e^{log i_t - m_t} k_t v_t^T   o_t = C'_t^T q_t / max(|n'_t^T q_t|, e^{-m_t})

which is the same in exact arithmetic, for any m_0. Both gates are then at most 1, so this is the
recurrence of `layers.recurrence` with n as one more column of C, once m is known by a scan of its
own, log T steps deep. The gates of both are soft-capped, c tanh(x / c) with c = 15; W_i and W_f start at
0, b_i at -10, b_f evenly from 3 to 6. Source: M. Beck et al., "xLSTM: Extended Long Short-Term
Memory", NeurIPS 2024 (arXiv 2405.04517), equations 19 to 27; caps, starts and the half width of keys
as in M. Beck et al., "xLSTM 7B", ICML 2025 (arXiv 2503.13427), without its 1e-6 in the quotient, which
would depend on m. sLSTM, whose steps must follow one another, is left out.

Axis letters: B batch, H heads, T tokens of a piece, D width of keys of a head, E of values, d width,
C tokens of a chunk.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.protocol import head_width
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, joined, split, unbiased, widened
from attnlab.layers.norms import GatedNorm
from attnlab.mixers.stateful import Shape, State, Stateful, Steps

NEVER = -1e30  # log i of padding


class Mlstm(Stateful):
    """mLSTM. The fields not named here are those of `Stateful`.

    Attributes:
      heads: H; must divide the width and the width of the keys.
      key_share: the width of all keys, in widths.
      cap: c; 0 for no cap.

    Card: state; Beck et al., xLSTM, NeurIPS 2024; time T d^2; state d^2 / H; path 1; steps T / C.
    """

    heads: int = 4
    key_share: float = 0.5
    cap: float = 15.0

    def setup(self) -> None:
        """Checks that `cap` is not negative (raises UserError if it is), and creates the
        projections, the gates' projection and bias, and the norm.
        """
        if self.cap < 0:
            raise UserError(f"mlstm: cap={self.cap}, must be above 0, or 0 for no cap")
        keys, zeros = self._keys(), nn.initializers.zeros
        self.w_query, self.w_key = unbiased(2, keys)
        self.w_value, self.w_out_gate, self.out = unbiased(3, self.width)
        self.w_gates = Dense(2 * self.heads, use_bias=False, kernel_init=zeros)
        self.bias = self.param("bias", _biases, (2, self.heads))
        self.norm = GatedNorm("sigmoid", epsilon=1e-6)

    @nn.nowrap
    def _keys(self) -> int:
        return round(self.key_share * self.width)

    @nn.nowrap
    def shape(self) -> Shape:
        """See `Stateful.shape`; n is the last column."""
        depth = head_width("mlstm", self._keys(), self.heads, "key_share * width")
        return Shape(self.heads, depth, head_width("mlstm", self.width, self.heads) + 1)

    @nn.nowrap
    def begin(self, rows: int, room: int, dtype: Any) -> State:
        """See `Mixer.begin`: zeros; m [B,H] is kept as `State.recent`."""
        state = super().begin(rows, room, dtype)
        largest = jnp.zeros((rows, self.heads), state.matrix.dtype)
        return state.replace(recent=largest)  # type: ignore[attr-defined, no-any-return]

    def steps(
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Returns the `Steps` of the recurrence for x [B,T,d], given the last stabiliser m [B,H]
        (`recent`): scaled queries, keys times e^{i_t - m_t} (i: log input gate), values, the log
        forget gate + m_{t-1} - m_t, and m; padding (not `valid` [B,T]) changes nothing; `positions`
        are not used. See `Stateful.steps`.
        """
        q, k, v = (split(w(x), self.heads) for w in (self.w_query, self.w_key, self.w_value))
        gates = widened(self.w_gates(x)).reshape(*x.shape[:2], 2, self.heads)
        gates = gates + widened(self.bias)
        if self.cap:
            gates = self.cap * jnp.tanh(gates / self.cap)
        i, f = gates[:, :, 0].swapaxes(1, 2), jax.nn.log_sigmoid(gates[:, :, 1].swapaxes(1, 2))
        if valid is not None:
            i = jnp.where(valid[:, None], i, NEVER)
            f = jnp.where(valid[:, None], f, 0.0)
        m, m_before = largest(f, i, recent)
        w = widened(k) * jnp.exp(i - m)[..., None]
        return Steps(q * q.shape[-1] ** -0.5, w, v, f + m_before - m, extras=m, recent=m[..., -1])

    def recurrence(
        self, steps: Steps, state: State, valid: jax.Array | None, at_start: bool
    ) -> tuple[jax.Array, Any]:
        """Runs the recurrence as `Stateful.recurrence` does, also over ones in place of values, n,
        and divides each output by the larger of |n| and e^-m; returns outputs and the new state.
        """
        v = jnp.pad(widened(steps.v), [(0, 0)] * 3 + [(0, 1)], constant_values=1)
        o, last = super().recurrence(dataclasses.replace(steps, v=v), state, valid, at_start)
        least = jnp.exp(-steps.extras)[..., None]
        return o[..., :-1] / jnp.maximum(jnp.abs(o[..., -1:]), least), last

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """See `Stateful.outputs`."""
        z = split(self.w_out_gate(x), self.heads)
        return self.out(joined(self.norm(o, z)).astype(x.dtype))


def largest(f: jax.Array, i: jax.Array, first: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Computes the running stabiliser m_t = max(f_t + m_{t-1}, i_t) of log gates f and i [B,H,T]
    from m_0 = first [B,H], without gradients: m_t and m_{t-1}, [B,H,T] each.

    The step (f, i) after (f', i') is (f + f', max(f + i', i)). No gradient: o does not depend on m.
    """
    f, i, first = jax.lax.stop_gradient((f, i, first))

    def combine(earlier: Any, later: Any) -> Any:
        return earlier[0] + later[0], jnp.maximum(later[0] + earlier[1], later[1])

    total, highest = jax.lax.associative_scan(combine, (f, i), axis=-1)
    m = jnp.maximum(total + first[..., None], highest)
    return m, jnp.concatenate([first[..., None], m[..., :-1]], axis=-1)


def _biases(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """b_i and b_f [2,H]."""
    return jnp.stack([jnp.full(shape[1], -10.0), jnp.linspace(3.0, 6.0, shape[1])])
