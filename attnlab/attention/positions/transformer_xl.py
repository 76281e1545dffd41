"""Relative positions of Transformer-XL (Dai et al. 2019).

    e_ij = scale * [ (q_i + u) . k_j  +  (q_i + w) . (R_{i-j} W_r)_h ]        R_n = [sin(n f_0), sin(n f_1), ... | cos(n f_0), ...]
    f_m = 10000^(-2m/d)

Axis letters: B batch, H heads, Tq queries, Tk keys, D head width, d = H D width of the sinusoid.
Cost, queries and keys each at consecutive positions: the Tq + Tk - 1 distances that occur are
projected once, 2 (Tq + Tk) d^2 FLOPs, and multiplied with every query, 2 B H Tq (Tq + Tk) D;
reading them off along diagonals (the paper's shift) is free. At any other positions: 2 B H Tq Tk d
instead, H times as much. Parameters: d^2 + 2 d. Source: Z. Dai et al., "Transformer-XL: Attentive
Language Models Beyond a Fixed-Length Context", ACL 2019 (arXiv 1901.02860), section 3.3 and
appendix B. Here every layer has its own u and w, which the paper shares, and distances may be
negative (a key to the right). The memory of the previous segment is not part of a position scheme.
"""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.view import View
from attnlab.layers.dense import GLOROT
from attnlab.layers.precision import inner_dtype, widened

_SMALL = nn.initializers.normal(0.02)


class TransformerXL(PositionScheme):
    """Products of queries with keys and with a projected sinusoid of the distance, each with its
    own trained offset.

    Attributes:
      base: the ratio of the longest to the shortest wavelength, 10000 in the paper.

    Card: relative; Dai et al., Transformer-XL, ACL 2019; time T^2 D + T d D.
    """

    base: float = 10000.0

    hooks = frozenset({"query_key", "score"})

    @nn.compact
    def weights(self, heads: int, width: int) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Creates, or returns, the parameters of the scheme for H = `heads` heads of D = `width`
        channels: u and w, each [H,D], and W_r [d,H,D] with d = H D.
        """
        u, w = (jnp.asarray(self.param(name, _SMALL, (heads, width))) for name in ("u", "w"))
        return (
            u,
            w,
            jnp.asarray(self.param("w_distance", GLOROT, (heads * width, heads * width))).reshape(
                -1, heads, width
            ),
        )

    def of_query(self, q: jax.Array, i: jax.Array) -> jax.Array:
        """See `PositionScheme.of_query`: q + u."""
        u, _, _ = self.weights(q.shape[1], q.shape[3])
        return q + u[:, None].astype(q.dtype)

    def bias(self, q: jax.Array, view: View, scale: float = 1.0) -> jax.Array:
        """Computes the bias of Transformer-XL, scale * (q_i + w)^T (R_{i-j} W_r), float32
        [B,H,Tq,Tk], for queries q [B,H,Tq,D] and positions i and j in the view, R the sinusoid of
        the distance, w and W_r learned. See `PositionScheme.bias`.
        """
        _, w, projection = self.weights(q.shape[1], q.shape[3])
        frequency = jnp.asarray(
            self.base ** -(np.arange(0, projection.shape[0], 2) / projection.shape[0]),
            inner_dtype(q, projection),
        )
        i, j = view.i, view.j
        if not (i.size and j.size):
            return jnp.zeros((*q.shape[:3], view.size[1]), frequency.dtype)
        query = widened(q) + w[:, None]
        if i.ndim == 2 or j.ndim == 2:
            return scale * by_pairs(query, widened(projection), frequency, i, j)
        in_turn = _consecutive(i) & _consecutive(j)
        terms = jax.lax.cond(
            in_turn,
            by_diagonals,
            by_pairs,
            query,
            widened(projection),
            frequency,
            i,
            j,
        )
        return scale * terms


def by_diagonals(
    query: jax.Array, projection: jax.Array, frequency: jax.Array, i: jax.Array, j: jax.Array
) -> jax.Array:
    """Computes q_i^T (R_{i-j} W_r), q the query and R the sinusoid of the distance, [B,H,Tq,Tk]
    float32, for consecutive i and consecutive j, with one product for each distance.

    Args:
      query: [B,H,Tq,D]; projection: W_r [d,H,D]; frequency: f [ceil(d/2)]; i: [Tq]; j: [Tk].
    """
    # from the last query's to the first key to the shortest
    distance = i[-1] - j[0] - jnp.arange(len(i) + len(j) - 1)
    angle = distance[:, None] * frequency
    table = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)[:, : projection.shape[0]]
    products = jnp.einsum("bhqd,nhd->bhqn", query, jnp.einsum("ne,ehd->nhd", table, projection))
    return along_diagonals(products, len(j))


def along_diagonals(products: jax.Array, keys: int) -> jax.Array:
    """Takes Tk = `keys` columns of each row a of products [...,Tq,Tq+Tk-1], beginning at column
    Tq-1-a: [...,Tq,Tk]; done by reshaping only.
    """
    *lead, rows, columns = products.shape
    flat = jnp.pad(products, [(0, 0)] * (len(lead) + 1) + [(0, 1)]).reshape(
        *lead, rows * (columns + 1)
    )
    return flat[..., rows - 1 : rows - 1 + rows * columns].reshape(*lead, rows, columns)[..., :keys]


def by_pairs(
    query: jax.Array, projection: jax.Array, frequency: jax.Array, i: jax.Array, j: jax.Array
) -> jax.Array:
    """Computes q_i^T (R_{i-j} W_r), q the query and R the sinusoid of the distance, [B,H,Tq,Tk]
    float32, for any i and j, [Tq] and [Tk] or [B,Tq] and [B,Tk]; other arguments as in
    `by_diagonals`. By sin(i-j) = sin i cos j - cos i sin j and cos(i-j) = cos i cos j + sin i sin
    j; no [Tq,Tk,D].
    """
    of_sines, of_cosines = jnp.split(
        jnp.einsum("bhqd,ehd->bhqe", query, projection), [len(frequency)], axis=-1
    )
    # an odd d has one cosine fewer
    of_cosines = jnp.pad(of_cosines, [(0, 0)] * 3 + [(0, len(frequency) - of_cosines.shape[-1])])
    angle = i[..., None] * frequency
    angle = angle[:, None] if i.ndim == 2 else angle  # the same for all heads
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    rotated = jnp.concatenate(
        [of_cosines * sine - of_sines * cosine, of_sines * sine + of_cosines * cosine], axis=-1
    )
    angle = j[..., None] * frequency
    table = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], axis=-1)
    return jnp.einsum("bhqe,ke->bhqk" if j.ndim == 1 else "bhqe,bke->bhqk", rotated, table)


def _consecutive(positions: jax.Array) -> jax.Array:
    return (jnp.diff(positions) == 1).all()
