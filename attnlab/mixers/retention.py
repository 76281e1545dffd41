"""Retention (Sun et al. 2023): linear attention whose heads forget, each at its own rate.

    q, k, v = R_t x W_q,  R_t x W_k / sqrt(D),  x W_v         R_t rotates by the position; values are `expansion` times as wide
    S_t     = gamma_h S_{t-1} + k_t v_t^T,  o_t = q_t^T S_t   gamma_h = 1 - 2^(-5-h), h = 0, ..., H - 1
    y       = (silu(x W_g) * GroupNorm(o)) W_o                one group for each head, without learned numbers

A token at distance n weighs gamma_h^n. The same in parallel: O = (Q K^T * Dm) V, Dm_ij = gamma^(i-j)
for j <= i. Source: Y. Sun et al., "Retentive Network: A Successor to Transformer for Large Language
Models", 2023 (arXiv 2307.08621), equations 1 to 8. The paper's normalisation of scores for the sake
of precision is left out: it scales rows, which GroupNorm undoes. Its rotation is xPos, whose growing
factors gamma takes over.

Axis letters: B batch, H heads, T tokens of a piece, D width of keys of a head, E of values, d width.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import head_width
from attnlab.config.registry import Part, made
from attnlab.layers.dense import inner_dtype, joined, split, unbiased
from attnlab.layers.norms import LayerNorm
from attnlab.mixers.stateful import LINEAR, Shape, Stateful, Steps


class Retention(Stateful):
    """Retention with H heads (RetNet). The fields not named here are those of `Stateful`.

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
