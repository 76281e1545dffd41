"""What a score is: a function of query and key that a mechanism can split into work per query, per
key and per pair.

Axis letters: B batch, H heads, K key heads, T length (Tq, Tk), dq/dk widths of query and key, A
width of what `of_query` and `of_key` return.
"""

from __future__ import annotations

import math
from typing import ClassVar

import flax.linen as nn
import jax

from attnlab.attention.cards import Card
from attnlab.errors import UserError

# the score of a pair that gets weight 0 next to any other pair; finite, to avoid infinity -
# infinity
NEVER = -1e30


class Score(nn.Module):
    """Base of every score, e_ij = pairs(of_query(q_i), of_key(k_j)); its parameters are shared by
    all heads.

    Attributes of the class (of the instance, where a score has another as its part):
      product: `pairs` is the inner product of its arguments, so kernels for dot products apply.
      rotary: between `of_query`/`of_key` and `pairs` a position scheme may turn queries and keys
        (rotary positions): `of_query` and `of_key` keep the width, and `pairs` stays the same when
        both sides are turned alike.
      places: a score depends on the position of its key, not only on the distance from the query.
      looks_back: a score depends on the weights of earlier queries, so queries are computed one by
        one: `pairs` takes `past`, and the score has `initial_history` and `after`.
      card: where it comes from.
    """

    product: ClassVar[bool] = False
    rotary: ClassVar[bool] = False
    places: ClassVar[bool] = False
    looks_back: ClassVar[bool] = False
    card: ClassVar[Card]

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """q [B,H,Tq,dq] to [B,H,Tq,A], once per query; `key_width` is dk, for parameters between
        the two.
        """
        return q

    def of_key(self, k: jax.Array) -> jax.Array:
        """k [B,K,Tk,dk] to [B,K,Tk,A], once per source; a memory keeps the result."""
        return k

    def scale(self, width: int) -> float:
        """The factor of inner products over `width`; the mechanism multiplies queries with it."""
        return 1.0

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """Scaled q [B,H,Tq,A] against k [B,H,Tk,A] whose keys stand at positions j, [Tk]
        or [B,Tk]: e [B,H,Tq,Tk], float32.

        Kernels call it on blocks of queries and keys: an entry may depend on its own query, key and
        position only.
        """
        raise NotImplementedError

    def initial_history(self, keys: jax.Array, heads: int) -> jax.Array:
        """Where `looks_back`: the `past` before the first query, [B,H,Tk]; keys [B,K,Tk,A] are what
        the memory keeps.
        """
        raise NotImplementedError

    def after(self, past: jax.Array, weights: jax.Array, keys: jax.Array) -> jax.Array:
        """Where `looks_back`: the `past` [B,H,Tk] of the next query, from that of this one and its
        weights [B,H,Tk].
        """
        raise NotImplementedError


def same_width(name: str, query: int, key: int) -> None:
    """Raise `UserError` unless both are equally wide, as an inner product or a distance needs."""
    if query != key:
        raise UserError(
            f"score {name}: the query is {query} wide, the key {key}; they must agree, or choose"
            " 'general' or 'additive'"
        )


def above_zero(name: str, field: str, value: float) -> None:
    """Raise `UserError` unless the value of a field is a number above 0."""
    if not 0.0 < value < math.inf:
        raise UserError(f"score {name}: {field}={value}, must be a number above 0")
