"""Contextual position encoding, CoPE (Golovneva et al. 2024): positions count only the keys that a
query finds worth counting.

    g_ij = sigmoid(s_ij)        s_ij = q_i . k_j / sqrt(D), the score before the position
    p_ij = min(sum over l = j..i of g_il, P - 1)
    e_ij = s_ij + (q_i . a[floor p_ij] (1 - r_ij) + q_i . a[floor p_ij + 1] r_ij) / sqrt(D),   r_ij = p_ij - floor p_ij

The sum is over the keys that the query may see, from j on; so it needs whole rows of scores, and a
causal sequence. Gates of 1 give Shaw's keys with the distance i - j + 1 cut at P - 1, a table of
zeros no positions. Gates learn through r. Axis letters: H heads, Tq queries, Tk keys, D head width,
P rows of the table (k on the card). Cost: 2 H Tq P D FLOPs for the products with all rows, then 14
for each pair, which is mostly picking two of them. Parameters: P D, shared by the heads, from zero
on. Source: O. Golovneva, T. Wang, J. Weston, S. Sukhbaatar, "Contextual Position Encoding: Learning
to Count What's Important", 2024 (arXiv 2405.18719), equations 3 to 5. There the gate may have
projections of its own; here it is the score's, whichever score it is.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.view import View, after_each, in_order, out_of_order
from attnlab.errors import at_least
from attnlab.layers.dense import inner_dtype, widened


class CoPE(PositionScheme):
    """A trained vector for each counted position, interpolated between whole ones, added to keys.

    Attributes:
      count: P, rows of the table; all counts above P - 1 share the last.

    Card: contextual; Golovneva et al., Contextual Position Encoding, 2024; time T^2 + T k D.
    """

    count: int = 16

    hooks = frozenset({"row"})
    looks_between = True

    def setup(self) -> None:
        at_least(1, "position scheme cope", count=self.count)

    @nn.compact
    def of_rows(
        self, q: jax.Array, scores: jax.Array, mask: jax.Array | None, view: View, scale: float
    ) -> jax.Array:
        """Returns the scores [B,H,Tq,Tk], each plus `scale` times the inner product of query q with
        a learned vector for the number of keys from key j to the query: the sum of the gates
        sigmoid(score) of the keys in `mask`, at most the field `count` - 1, interpolated between
        whole numbers. See `PositionScheme.of_rows`.
        """
        table = self.param("table", nn.initializers.zeros, (self.count, q.shape[-1]))
        if not scores.shape[-1]:
            return scores
        gates = jnp.where(True if mask is None else mask, jax.nn.sigmoid(scores), 0.0)
        ordered, inverse = in_order(gates, view.keys)
        counted = out_of_order(ordered + after_each(ordered), inverse)
        place = jnp.minimum(counted, self.count - 1.0)
        below = jnp.floor(jax.lax.stop_gradient(place))
        fraction, row = place - below, below.astype(jnp.int32)
        products = scale * jnp.einsum(
            "bhqd,pd->bhqp",
            widened(q),
            widened(table),
            preferred_element_type=inner_dtype(q, table),
        )
        near, far = (
            jnp.take_along_axis(products, index, axis=-1, mode="promise_in_bounds")
            for index in (row, jnp.minimum(row + 1, self.count - 1))
        )
        return scores + near + fraction * (far - near)
