"""What a score is: a function of query and key that a mechanism can split into work per query, per
key and per pair. The first of them, inner products: e_ij = q_i . k_j (Luong et al. 2015) and
e_ij = q_i . k_j / sqrt(D) (Vaswani et al. 2017).

Cost of these: 2 D FLOPs for each pair, no parameters. If the components have unit variance, the product has
variance D; dividing by sqrt(D) makes it 1. Source: M.-T. Luong, H. Pham, C. D. Manning, "Effective
Approaches to Attention-based Neural Machine Translation", EMNLP 2015, section 3.1; A. Vaswani et
al., "Attention Is All You Need", NeurIPS 2017, equation 1.

Axis letters: B batch, H heads, K key heads, T length (Tq, Tk), dq/dk widths of query and key, A
width of what `of_query` and `of_key` return.
"""

import math
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.errors import UserError
from attnlab.layers.dense import inner_dtype

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
        one: `pairs` takes `past`, and the score has `after`, and may have `initial_history`.
    """

    product: ClassVar[bool] = False
    rotary: ClassVar[bool] = False
    places: ClassVar[bool] = False
    looks_back: ClassVar[bool] = False

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
        """Where `looks_back`: the `past` before the first query, zeros [B,H,Tk]; keys [B,K,Tk,A] are
        what the memory keeps.
        """
        return jnp.zeros((keys.shape[0], heads, keys.shape[2]), inner_dtype(keys))

    def after(self, past: jax.Array, weights: jax.Array, keys: jax.Array) -> jax.Array:
        """Where `looks_back`: the `past` [B,H,Tk] of the next query, from that of this one and its
        weights [B,H,Tk].
        """
        raise NotImplementedError


def same_width(name: str, query_width: int, key_width: int) -> None:
    """Raises `UserError`, with the name of the score, unless the query, `query_width` wide, is as
    wide as the key, `key_width`: an inner product or a distance needs that.
    """
    if query_width != key_width:
        raise UserError(
            f"score {name}: the query is {query_width} wide, the key {key_width}; they must agree, or choose"
            " 'general' or 'additive'"
        )


def above_zero(name: str, field: str, value: float) -> None:
    """Raises `UserError`, with the name of the score, unless the value of its field `field` is a
    finite number above 0.
    """
    if not 0.0 < value < math.inf:
        raise UserError(f"score {name}: {field}={value}, must be a number above 0")


class Dot(Score):
    """e_ij = q_i . k_j; both sides equally wide.

    Card: product; Luong et al., Effective Approaches to Attention-based NMT, EMNLP 2015;
    time T^2 D; state T D.
    """

    product = True
    rotary = True

    def of_query(self, q: jax.Array, key_width: int) -> jax.Array:
        """See `Score.of_query`."""
        same_width(type(self).__name__, q.shape[-1], key_width)
        return q

    def pairs(self, q: jax.Array, k: jax.Array, j: jax.Array) -> jax.Array:
        """See `Score.pairs`."""
        return inner(q, k)


class ScaledDot(Dot):
    """e_ij = q_i . k_j / sqrt(D), D the width of both.

    Attributes:
      over: what stands below the root in the place of D; 0 for D. Gemma 2 and 3 have a number of
        their own there (`query_pre_attn_scalar` in their configs).

    Card: product; Vaswani et al., Attention Is All You Need, NeurIPS 2017; time T^2 D; state T D.
    """

    over: float = 0.0

    def scale(self, width: int) -> float:
        """Returns the factor 1 / sqrt(D) of inner products, D the field `over`, or `width` if that
        is 0; raises `UserError` if `over` is negative or not finite.
        """
        if not 0.0 <= self.over < math.inf:
            raise UserError(f"score scaled_dot: over={self.over}, must be a number of at least 0")
        return float((self.over or width) ** -0.5)


def inner(q: jax.Array, k: jax.Array) -> jax.Array:
    """Computes q k^T [B,H,Tq,Tk], summed in float32, of q [B,H,Tq,A] and k [B,H,Tk,A]."""
    return jnp.einsum("bhqa,bhka->bhqk", q, k, preferred_element_type=inner_dtype(q, k))
