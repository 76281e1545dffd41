"""Tensor product attention (Zhang et al. 2025): queries, keys and values of all heads are sums of a
few outer products, and a cache keeps only the factors.

    k_t[h] = 1/R sum over r of a_tr[h] b_tr        a_tr = (s_t W_a)_r [H],  b_tr = (s_t W_b)_r [D]        values and queries alike
    y      = multi-head attention over them

R is the rank: R_q of queries, R_k of keys, R_v of values. Factors a that are constant, and R at one
head of each group and 0 elsewhere, give grouped-query attention with R key heads: R = 1 multi-query,
R = H multi-head attention. Keys and values of the heads are formed from the factors when they are
read, after which score and position scheme act as in multi-head attention; a rotation of k equals
one of the factors b. Memory for decoding: (R_k + R_v)(H + D) numbers per token. Parameters: those of
multi-head attention with d (R_q + R_k + R_v)(H + D) in place of the three projections. Cost: 2 (R_k
+ R_v) H D FLOPs for each key to form keys and values. Source: Y. Zhang, Y. Liu, H. Yuan, Z. Qin, Y.
Yuan, Q. Gu, A. C. Yao, "Tensor Product Attention Is All You Need", 2025 (arXiv 2501.06425), section
3. There the cache keeps rotated factors; here it keeps them as they are.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.mechanisms.multihead import MultiHead, MultiHeadMemory
from attnlab.attention.protocol import Memory, Tokens
from attnlab.attention.view import token_positions
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import Dense


class Factors(nn.Module):
    """[B,T,d] to the factors of vectors [H,D], or to these vectors side by side.

    Attributes:
      heads, size, rank: H, D and R.
    """

    heads: int
    size: int
    rank: int

    def setup(self) -> None:
        self.of_heads = Dense(self.rank * self.heads, use_bias=False)
        self.of_widths = Dense(self.rank * self.size, use_bias=False)

    def split(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Projects x [B,T,d] to the factors of its heads: a [B,R,T,H] over the heads and b
        [B,R,T,D] over the channels.
        """
        a, b = (
            project(x).reshape(*x.shape[:2], self.rank, size).swapaxes(1, 2)
            for project, size in ((self.of_heads, self.heads), (self.of_widths, self.size))
        )
        return a, b

    def __call__(self, x: jax.Array) -> jax.Array:
        """The vectors, [B,T,H*D]."""
        return joined(*self.split(x)).swapaxes(1, 2).reshape(*x.shape[:2], self.heads * self.size)


def joined(a: jax.Array, b: jax.Array) -> jax.Array:
    """1/R sum_r a_r b_r^T [B,H,T,D] of a [B,R,T,H] and b [B,R,T,D]."""
    return jnp.einsum("brth,brtd->bhtd", a, b) / a.shape[1]


@flax.struct.dataclass
class TensorMemory(Memory):
    """key_heads [B,R_k,Tk,H], key_widths [B,R_k,Tk,D], and the same of values."""

    key_heads: jax.Array
    key_widths: jax.Array
    value_heads: jax.Array
    value_widths: jax.Array


class TensorProduct(MultiHead):
    """Multi-head attention over factored queries, keys and values; other fields as in `MultiHead`,
    key_heads always 0.

    Attributes:
      query_rank: R_q; 0 for an ordinary projection of queries.
      key_rank: R_k.
      value_rank: R_v.

    Card: heads, factored; Zhang et al., Tensor Product Attention, 2025; time T^2 d + T d^2;
    state T d; path 1; steps 1.
    """

    query_rank: int = 6
    key_rank: int = 2
    value_rank: int = 2

    capabilities = dataclasses.replace(MultiHead.capabilities, window=False)

    memory_class = TensorMemory

    def setup(self) -> None:
        """Checks that key_heads is 0 and the ranks are large enough (raises UserError if not), and
        creates the projections.
        """
        if self.key_heads:
            raise UserError(
                f"tensor_product: key_heads={self.key_heads}; factors serve all heads, set key_heads"
                " to 0 and key_rank, value_rank in its place"
            )
        at_least(0, "tensor_product", query_rank=self.query_rank)
        at_least(1, "tensor_product", key_rank=self.key_rank, value_rank=self.value_rank)
        super().setup()

    @nn.nowrap
    def projection(self, name: str, heads: int) -> Any:
        """Creates the projection called `name` ("query", "key" or "value") to `heads` heads:
        `Factors` of the rank in its field, or a dense layer if that rank is 0; raises UserError if
        factors are to have a bias. See `MultiHead.projection`.
        """
        rank: int = getattr(self, f"{name}_rank")
        if not rank:
            return super().projection(name, heads)
        if self.biased(name):
            raise UserError(
                f"tensor_product: bias={self.bias!r}; factors have none, choose among"
                f" {'()' if self.query_rank else 'query'} and 'out'"
            )
        return Factors(heads, self.size(), rank)

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """See `Attention.arrays`: the factors, whatever the positions."""
        (a, b), (c, d) = self.w_key.split(tokens.keys), self.w_value.split(tokens.values)
        return {"key_heads": a, "key_widths": b, "value_heads": c, "value_widths": d}

    def formed(self, memory: Any) -> MultiHeadMemory:
        """Returns the multi-head memory with the keys and values of a memory of factors: multiplies
        the factors and rotates the keys by position; a memory that is a `MultiHeadMemory` already
        is returned as it is. See `HeadsAttention.formed`.
        """
        if isinstance(memory, MultiHeadMemory):
            return memory
        start = 0 if memory.positions is None else memory.positions
        keys = self.fit.of_key(joined(memory.key_heads, memory.key_widths))
        return MultiHeadMemory(
            memory.valid,
            memory.length,
            self.scheme.of_key(keys, token_positions(start, keys.shape[2])),
            joined(memory.value_heads, memory.value_widths),
            positions=memory.positions,
        )
