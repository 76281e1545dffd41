"""Relative position schemes: what they add to the score of a query at i and a key at j follows from the
distance between them.

    alibi            a penalty in proportion to the distance, at a fixed slope for each head     Press et al. 2022
    t5               a trained number for each head and bucket of distances                      Raffel et al. 2020
    shaw             a trained vector for each clipped distance, times the query                 Shaw et al. 2018
    transformer_xl   a projected sinusoid of the distance, times the query                       Dai et al. 2019

The class of each has its formula, cost and source. Axis letters: B batch, H heads, Tq queries, Tk keys,
D head width, Dv value width.
"""

import functools
import math
from typing import Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.view import View
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import GLOROT, inner_dtype, widened

_SMALL = nn.initializers.normal(0.02)


class Alibi(PositionScheme):
    """A penalty that grows with the distance, at a fixed slope for each head.

        e_ij = score(q_i, k_j) - m_h |i - j|                m_h = 2^(-8 h / H), h = 1..H, where H is a power of two

    Any other H: the slopes of the next smaller power of two n, then every other one of those of 2n,
    from its first. Cost: one product and one sum for each pair; no parameters. Source: O. Press, N.
    A. Smith, M. Lewis, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
    Extrapolation", ICLR 2022 (arXiv 2108.12409), section 3, and the authors' code for H that are no
    power of two. The paper is causal, where |i - j| is i - j; for keys after the query there is no
    agreed form; we use the distance. The bias is not scaled.

    Attributes:
      strength: factor of all slopes; 1 in the paper, 0 for no positions.

    Card: relative; Press et al., Train Short, Test Long, ICLR 2022; time T^2.
    """

    strength: float = 1.0

    hooks = frozenset({"score"})

    def bias(self, q: jax.Array, view: View, scale: float = 1.0) -> jax.Array:
        """Computes the bias -m_h |i - j| `strength`, float32 [1 or B,H,Tq,Tk], of the positions i
        and j in the view, m_h the fixed slope of each head; of q only shape and dtype are used,
        `scale` is not. See `PositionScheme.bias`.
        """
        slope = jnp.asarray(slopes(q.shape[1]), inner_dtype(q))[:, None, None] * self.strength
        distance = jnp.abs(view.rows - view.columns)
        return -(slope * distance.astype(slope.dtype))


def slopes(heads: int) -> list[float]:
    """m_h of every head, in their order."""
    power = 1 << (heads.bit_length() - 1)
    return _geometric(power) + _geometric(2 * power)[::2][: heads - power]


def _geometric(heads: int) -> list[float]:
    return [2.0 ** (-8.0 * h / heads) for h in range(1, heads + 1)]


class T5(PositionScheme):
    """A trained number for each head and bucket of distances, added to the scores.

        e_ij = score(q_i, k_j) + b_h[bucket(j - i)]

    There is one bucket for each short distance, then buckets that widen logarithmically up to
    `max_distance`, and one for all larger distances. Of n buckets on a side, with x = n // 2,
    distance m is in bucket m if m < x, else in min(x + floor(ln(m/x) / ln(max_distance/x) (n - x)),
    n - 1). Causal: all buckets are for the past, keys to the right share bucket 0. Otherwise half
    are for keys to the left and the query itself, half for keys to the right (the first of which is
    never used, as in the authors' code). Cost: a gather for each pair and head, none for each row
    of a batch. Parameters: buckets * H. Source: C. Raffel et al., "Exploring the Limits of Transfer
    Learning with a Unified Text-to-Text Transformer", JMLR 2020, section 2.1, and the authors' code.
    Here every layer has its own table; the paper's layers of one stack share that of the first. T5
    does not scale scores: combine with the score "dot" to be exact.

    Attributes:
      buckets: how many groups of distances there are, each with a number for each head; even.
      max_distance: the distance from which all larger ones are in one group.

    Card: relative; Raffel et al., Exploring the Limits of Transfer Learning, JMLR 2020; time T^2.
    """

    buckets: int = 32
    max_distance: int = 128

    hooks = frozenset({"score"})

    def setup(self) -> None:
        """Checks that `buckets` is even and at least 4, and `max_distance` above half of it; raises
        UserError if not.
        """
        if self.buckets < 4 or self.buckets % 2:
            raise UserError(
                f"position scheme t5: buckets={self.buckets}, must be even and at least 4;"
                f" {max(4, self.buckets + 1)} would do"
            )
        where = f"position scheme t5 with buckets={self.buckets}"
        at_least(self.buckets // 2 + 1, where, max_distance=self.max_distance)

    @nn.compact
    def bias(self, q: jax.Array, view: View, scale: float = 1.0) -> jax.Array:
        """Computes the bias b_h[bucket(j - i)], [1 or B,H,Tq,Tk], for the positions in the view
        from a learned table with a number for each bucket and head; of q only the shape is used,
        `scale` is not. See `PositionScheme.bias`.
        """
        heads, width = q.shape[1], q.shape[3]
        table = jnp.asarray(
            self.param(
                "table", nn.initializers.normal((heads * width) ** -0.5), (self.buckets, heads)
            )
        )
        rows = bucket(view.distance, view.is_causal, self.buckets, self.max_distance)
        return table.T[:, rows][None] if rows.ndim == 2 else table.T[:, rows].swapaxes(0, 1)


def bucket(
    distance: jax.Array, causal: bool, buckets: int = 32, max_distance: int = 128
) -> jax.Array:
    """Computes the bucket number, int32, of each `distance` (key less query position): small ones
    have a bucket each, larger ones share logarithmic buckets up to `max_distance`; later keys have
    the upper half of the `buckets`, or all bucket 0 if `causal`.
    """
    if causal:
        return _side(jnp.maximum(-distance, 0), buckets, max_distance)
    return _side(jnp.abs(distance), buckets // 2, max_distance) + jnp.where(
        distance > 0, buckets // 2, 0
    )


def _side(distance: jax.Array, count: int, max_distance: int) -> jax.Array:
    """The bucket of distances >= 0 among the `count` of one side."""
    edges = jnp.asarray(starts(count, max_distance))
    return jnp.searchsorted(edges, distance, side="right", method="compare_all") - 1


@functools.cache
def starts(count: int, max_distance: int) -> tuple[int, ...]:
    """Computes a tuple of the first distance of each of `count` buckets: one bucket for each
    distance at first, then logarithmic ones up to `max_distance`. In exact integers: a rounded
    logarithm would be off by one at the edges.

    x + floor(ln(m/x) / ln(M/x) s) >= x + b, with s = count - x, says m^s >= x^(s-b) M^b.
    """
    exact = count // 2
    steps = count - exact

    def first(step: int) -> int:
        """Computes the first distance of the bucket `step` behind those of one distance each."""
        m = max(1, math.floor(exact * (max_distance / exact) ** (step / steps)) - 1)
        while m**steps < exact ** (steps - step) * max_distance**step:
            m += 1
        return m

    return (*range(exact), *map(first, range(steps)))


class Shaw(PositionScheme):
    """A trained vector for each clipped distance, added to keys and optionally to values.

        r(i,j) = clip(j - i, -k, k) + k                      a row in 0..2k, key minus query
        e_ij   = q_i . (k_j + a^K[r(i,j)]) * scale           z_i = sum_j w_ij (v_j + a^V[r(i,j)])

    Cost: no [Tq,Tk,D] array is made. Keys: all 2k+1 products of a query, 2 B H Tq (2k+1) D FLOPs,
    then one of them picked for each pair. Values: the weights summed by row, B H Tq Tk additions,
    then 2 B H Tq (2k+1) Dv FLOPs. Parameters: (2k+1) D and (2k+1) Dv. Source: P. Shaw, J. Uszkoreit,
    A. Vaswani, "Self-Attention with Relative Position Representations", NAACL 2018 (arXiv
    1803.02155), equations 3, 4 and 5. As there the tables are shared by the heads of a layer;
    `sides="key"` leaves a^V out.

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


class TransformerXL(PositionScheme):
    """Products of queries with keys and with a projected sinusoid of the distance, each with its
    own trained offset.

        e_ij = scale * [ (q_i + u) . k_j  +  (q_i + w) . (R_{i-j} W_r)_h ]        R_n = [sin(n f_0), sin(n f_1), ... | cos(n f_0), ...]
        f_m = 10000^(-2m/d)

    d = H D is the width of the sinusoid. Cost: with queries and keys each at consecutive positions,
    the Tq + Tk - 1 distances that occur are projected once, 2 (Tq + Tk) d^2 FLOPs, and multiplied
    with every query, 2 B H Tq (Tq + Tk) D; reading them off along diagonals (the paper's shift) is
    free. At any other positions: 2 B H Tq Tk d instead, H times as much. Parameters: d^2 + 2 d. Source: Z.
    Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length Context", ACL 2019
    (arXiv 1901.02860), section 3.3 and appendix B. Here every layer has its own u and w, which the
    paper shares, and distances may be negative (a key to the right). The memory of the previous
    segment is not part of a position scheme.

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
