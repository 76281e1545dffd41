"""Multi-head scaled dot-product attention (Vaswani et al. 2017).

    q, k, v = x W_q, s W_k, s W_v split into H heads of D = width / H
    A_h = softmax(q_h k_h^T / sqrt(D)) over the allowed keys        y = concat_h(A_h v_h) W_o

Cost: 4 Tq Tk width FLOPs for the two products, 2 n m per row of each projection; memory Tq Tk H.
Source: A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017 (arXiv 1706.03762), section 3.2. As in its formulas the
projections have no biases unless asked for; a row with nothing to see gives zeros, which the paper leaves open.
"""

from __future__ import annotations

import math

import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention import alignments
from attnlab.attention.projections import Dense, Dropout
from attnlab.attention.protocol import Attention, Capabilities, Memory, Reading, written
from attnlab.attention.visibility import EVERYTHING, Visibility
from attnlab.errors import UserError


@flax.struct.dataclass
class MultiHeadMemory(Memory):
    """keys, values [B,H,Tk,D]; heads first, the layout the two products run fastest in."""

    keys: jax.Array
    values: jax.Array


class MultiHead(Attention):
    """H independent scaled dot products; queries, keys, values and context are all H * D = width wide.

    Attributes:
      heads: H; must divide the width.
      dropout: rate on the attention weights, not renormalised.
      bias: biases on all four projections.
    """

    heads: int = 4
    dropout: float = 0.0
    bias: bool = False

    capabilities = Capabilities(dropout=True)

    def setup(self) -> None:
        if self.heads < 1 or self.width % self.heads:
            near = [h for h in range(1, self.width + 1) if self.width % h == 0]
            near = sorted(near, key=lambda h: abs(h - self.heads))[:3]
            raise UserError(f"multihead: width={self.width} is not divisible by heads={self.heads}; heads could be {_either(near)}")
        self.of_query = Dense(self.width, self.bias)
        self.of_key = Dense(self.width, self.bias)
        self.of_value = Dense(self.width, self.bias)
        self.out = Dense(self.width, self.bias)
        self.drop = Dropout(self.dropout)

    def split(self, x: jax.Array) -> jax.Array:
        """[B,T,H*D] to heads first, [B,H,T,D]."""
        return x.reshape(*x.shape[:2], self.heads, self.width // self.heads).transpose(0, 2, 1, 3)

    def remember(self, source: jax.Array, valid: jax.Array | None = None, capacity: int | None = None) -> MultiHeadMemory:
        """See `Attention.remember`."""
        known, length = written(source, valid, capacity)
        room = ((0, 0), (0, 0), (0, known.shape[1] - source.shape[1]), (0, 0))
        keys, values = (jnp.pad(self.split(of(source)), room) for of in (self.of_key, self.of_value))
        return MultiHeadMemory(known, length, keys, values)

    def extend(self, memory: MultiHeadMemory, source: jax.Array, valid: jax.Array | None = None) -> MultiHeadMemory:
        """See `Attention.extend`."""
        fresh, _ = written(source, valid, None)
        put = jax.lax.dynamic_update_slice_in_dim
        return MultiHeadMemory(
            valid=put(memory.valid, fresh, memory.length, 1),
            length=memory.length + source.shape[1],
            keys=put(memory.keys, self.split(self.of_key(source)).astype(memory.keys.dtype), memory.length, 2),
            values=put(memory.values, self.split(self.of_value(source)).astype(memory.values.dtype), memory.length, 2),
        )

    def read(self, query: jax.Array, memory: MultiHeadMemory, visibility: Visibility = EVERYTHING) -> Reading:
        """See `Attention.read`."""
        queries = self.split(self.of_query(query))  # [B,H,Tq,D]
        mask = memory.valid[:, None, None, :]
        rules = visibility.mask(query.shape[1], memory.valid.shape[1], memory.length)
        mask = mask if rules is None else mask & rules
        scores = jnp.einsum("bhqd,bhkd->bhqk", queries, memory.keys, preferred_element_type=jnp.float32)
        weights = alignments.softmax(scores / math.sqrt(queries.shape[-1]), mask)
        dropped = self.drop(weights).astype(memory.values.dtype)
        context = jnp.einsum("bhqk,bhkd->bhqd", dropped, memory.values).transpose(0, 2, 1, 3)
        context = context.reshape(*query.shape[:2], self.width)
        return Reading(self.out(context), self.capture(weights))


def _either(numbers: list[int]) -> str:
    return " or ".join(map(str, sorted(numbers)))
