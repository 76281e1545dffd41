"""A score, an alignment and a position scheme, each with its float64 oracle from the formula alone.

e_ij = sign(q_i . k_j) |q_i . k_j|^p       w_ij = relu(e_ij)^2 / sum_k relu(e_ik)^2       e_ij - s |i - j|
"""

import jax.numpy as jnp
import numpy as np

from attnlab.attention.alignments.protocol import Alignment
from attnlab.attention.positions.protocol import PositionScheme
from attnlab.attention.scores.protocol import ScaledDot, inner
from attnlab.layers.dense import inner_dtype, widened


class Power(ScaledDot):
    """A power of the scaled inner product that keeps its sign."""

    power: float = 1.5
    product = False  # no inner product itself, but still the same if both sides are turned: rotary

    def pairs(self, q, k, j):
        e = inner(q, k)
        apart = jnp.where(e == 0, 1.0, jnp.abs(e))  # the slope of a power at 0 may be infinite
        return jnp.where(e == 0, 0.0, jnp.sign(e) * apart**self.power)


class Squared(Alignment):
    """Squares of positive scores; nothing is seen where there are none."""

    sums_to = "at most one"

    def __call__(self, scores, mask, view):
        part = jnp.square(jnp.maximum(widened(scores), 0.0))
        part = part if mask is None else jnp.where(mask, part, 0.0)
        total = part.sum(axis=-1, keepdims=True)
        return part / jnp.where(total == 0, 1.0, total)


class Near(PositionScheme):
    """The same penalty on distance for all heads."""

    slope: float = 0.1
    hooks = frozenset({"score"})

    def bias(self, q, view, scale=1.0):
        return -self.slope * jnp.abs(view.rows - view.columns).astype(inner_dtype(q))


def power(params, fields, q, k, j):
    """Of one query [d] and one key [d]."""
    e = q @ k / np.sqrt(len(q))
    return np.sign(e) * np.abs(e) ** fields.get("power", 1.5)


def squared(row):
    """Of a row: `scores` [Tk] of one query, of which those `allowed` may be seen."""
    part = np.where(row.allowed, np.maximum(row.scores, 0.0) ** 2, 0.0)
    return part / (part.sum() or 1.0)


def nearness(params, fields, h, q, k, i, j):
    """What head h adds to the score of a query at i and a key at j."""
    return -fields.get("slope", 0.1) * abs(i - j)
