"""Bucketed relative bias of T5 (Raffel et al. 2020).

    e_ij = score(q_i, k_j) + b_h[bucket(j - i)]

There is one bucket for each short distance, then buckets that widen logarithmically up to
`max_distance`, and one for all larger distances. Of n buckets on a side, with x = n // 2, distance
m is in bucket m if m < x, else in min(x + floor(ln(m/x) / ln(max_distance/x) (n - x)), n - 1).
Causal: all buckets are for the past, keys to the right share bucket 0. Otherwise half are for keys
to the left and the query itself, half for keys to the right (the first of which is never used, as
in the authors' code). Axis letters: H heads, Tq queries, Tk keys. Cost: a gather for each pair and
head, none for each row of a batch. Parameters: buckets * H. Source: C. Raffel et al., "Exploring
the Limits of Transfer Learning with a Unified Text-to-Text Transformer", JMLR 2020, section 2.1,
and the authors' code. Here every layer has its own table; the paper's layers of one stack share
that of the first. T5 does not scale scores: combine with the score "dot" to be exact.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.view import View
from attnlab.errors import UserError, at_least


class T5(PositionScheme):
    """A trained number for each head and bucket of distances, added to the scores.

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
