"""Relative position representations (Shaw, Uszkoreit, Vaswani 2018).

    r(i,j) = clip(j - i, -k, k) + k                      a row in 0..2k, key minus query
    e_ij   = q_i . (k_j + a^K[r(i,j)]) * scale           z_i = sum_j w_ij (v_j + a^V[r(i,j)])

Axis letters: B batch, H heads, Tq queries, Tk keys, D head width, Dv value width, k the clip. Cost:
no [Tq,Tk,D] array is made. Keys: all 2k+1 products of a query, 2 B H Tq (2k+1) D FLOPs, then one of
them picked for each pair. Values: the weights summed by row, B H Tq Tk additions, then 2 B H Tq
(2k+1) Dv FLOPs. Parameters: (2k+1) D and (2k+1) Dv. Source: P. Shaw, J. Uszkoreit, A. Vaswani,
"Self-Attention with Relative Position Representations", NAACL 2018 (arXiv 1803.02155), equations 3,
4 and 5. As there the tables are shared by the heads of a layer; `sides="key"` leaves a^V out.
"""

from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.view import View
from attnlab.errors import at_least
from attnlab.layers.dense import GLOROT
from attnlab.layers.precision import inner_dtype, widened


class Shaw(PositionScheme):
    """A trained vector for each clipped distance, added to keys and optionally to values.

    Attributes:
      clip: k, the largest distance with a vector of its own; all larger ones share that of k.
      sides: "both" (the paper) adds to keys and values, "key" to keys only.

    Card: relative; Shaw et al., Relative Position Representations, NAACL 2018; time T^2 + T k D.
    """

    clip: int = 16
    sides: Literal["key", "both"] = "both"

    hooks = frozenset({"score", "value"})

    def __post_init__(self) -> None:
        """Sets the instance's attribute `hooks` to {"score"}, so that contexts stay unchanged, if
        the field `sides` is "key".
        """
        # hooks of the instance; those of the class are all that it can have
        if self.sides == "key":
            object.__setattr__(self, "hooks", frozenset({"score"}))
        super().__post_init__()

    def setup(self) -> None:
        at_least(0, "position scheme shaw", clip=self.clip)

    @nn.compact
    def table(self, name: str, width: int) -> jax.Array:
        """The table "keys" or "values", [2k+1, width]."""
        return jnp.asarray(self.param(name, GLOROT, (2 * self.clip + 1, width)))

    def bias(self, q: jax.Array, view: View, scale: float = 1.0) -> jax.Array:
        """See `PositionScheme.bias`: scale * q_i . a^K[r(i,j)], float32 [B,H,Tq,Tk]."""
        return scale * key_part(q, self.table("keys", q.shape[-1]), self.rows(view))

    def values(self, weights: jax.Array, view: View, width: int) -> jax.Array | None:
        """Computes from weights w the term sum_j w_ij a^V[r(i,j)] of the context, float32
        [B,H,Tq,width], a^V a learned vector for each clipped distance r of the positions in the
        view, or returns None if the field `sides` is "key". See `PositionScheme.values`.
        """
        if self.sides == "key":
            return None
        return value_part(weights, self.table("values", width), self.rows(view))

    def rows(self, view: View) -> jax.Array:
        """r, int32 [Tq,Tk], or [B,Tq,Tk] if rows differ."""
        return clipped(view.distance, self.clip)


def clipped(distance: jax.Array, clip: int) -> jax.Array:
    """The row, in a table of 2 clip + 1 rows, of signed distances of any shape."""
    return jnp.clip(distance, -clip, clip) + clip


def key_part(q: jax.Array, table: jax.Array, rows: jax.Array) -> jax.Array:
    """Computes q_i . table[rows_ij], float32 [B,H,Tq,Tk], of queries q [B,H,Tq,D], a table [R,D]
    and its row for each pair, rows [Tq,Tk] or [B,Tq,Tk].
    """
    if rows.ndim == 3:
        return jax.vmap(key_part, (0, None, 0))(q, table, rows)
    products = jnp.einsum("...qd,rd->...qr", q, table, preferred_element_type=inner_dtype(q, table))
    return products.at[..., jnp.arange(rows.shape[0])[:, None], rows].get(mode="promise_in_bounds")


def value_part(weights: jax.Array, table: jax.Array, rows: jax.Array) -> jax.Array:
    """Computes sum_j weights_ij table[rows_ij], float32 [B,H,Tq,Dv], from weights [B,H,Tq,Tk],
    table [R,Dv] and its row for each pair, rows [Tq,Tk] or [B,Tq,Tk].
    """
    if rows.ndim == 3:
        return jax.vmap(value_part, (0, None, 0))(weights, table, rows)
    sums = jnp.zeros((*weights.shape[:-1], table.shape[0]), inner_dtype(weights))
    sums = sums.at[..., jnp.arange(rows.shape[0])[:, None], rows].add(
        widened(weights), mode="promise_in_bounds"
    )
    return jnp.einsum(
        "...qr,rd->...qd", sums, table, preferred_element_type=inner_dtype(sums, table)
    )
