"""Synthesizer (Tay et al. 2021): weights without comparing queries with keys; they come from the
query alone, or from its position alone.

    dense    e_ij = (relu(x_i W_1 + b_1) W_2 + b_2)[j]      W_1 [dq,A], W_2 [A,L] of each head
    random   e_ij = R_ij                                    R [L,L] of each head, learned
             e_ij = (U V^T)_ij                              with a rank k: U, V [L,k], the factorised form
    A_h = align(e_h)      y = concat_h(A_h s W_v) W_o

Column j belongs to position j, so sources have at most L tokens; longer ones are refused. Short
ones use the first columns, and only these are computed. Any rule, padding and a cache work as in
multi-head attention, since they act on pairs. Cost: 2 A FLOPs for a pair and head (dense), 2 k
(factorised), none (random), in place of 2 D. A memory keeps values only, T d numbers. Source: Y.
Tay, D. Bahri, D. Metzler, D.-C. Juan, Z. Zhao, C. Zheng, "Synthesizer: Rethinking Self-Attention
for Transformer Models", ICML 2021 (arXiv 2005.00743), sections 3.1-3.3. There the hidden layer is d
wide and the mechanism replaces self-attention only; here A is the width of a head by default, and
between two sequences the weights depend on the query (or its position) in the same way. Their
factorised dense form and mixtures of forms are not here.
"""

from typing import Any, Literal

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.alignments import ALIGNMENTS
from attnlab.attention.kernels import KernelName
from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.mechanisms.heads import HeadsAttention
from attnlab.attention.memories import Memory
from attnlab.attention.protocol import Capabilities, Tokens, head_width
from attnlab.attention.view import View, Where
from attnlab.config.registry import Part
from attnlab.errors import UserError, at_least
from attnlab.layers.dense import Dense, split, unbiased, widened

_COLUMNS = nn.initializers.variance_scaling(
    1.0, "fan_avg", "uniform", in_axis=1, out_axis=2, batch_axis=0
)


@flax.struct.dataclass
class SynthesizerMemory(Memory):
    """values [B,H,Tk,D]; there are no keys."""

    values: jax.Array


class Synthesizer(HeadsAttention):
    """H heads of width D = width / H over sources of at most L tokens.

    Attributes:
      heads: H; must divide the width.
      form: "dense" (weights from the query) or "random" (weights from positions).
      length: L, the longest source; in a config that does not name it, at least `batch.max_length`.
      hidden: A, of "dense"; 0 for D.
      rank: k of "random"; 0 for a whole matrix R.
      alignment: scores to weights.
      dropout: rate on the attention weights, not renormalised.
      kernel: how it is computed; none changes the result (see `kernels`).

    Card: synthetic; Tay et al., Synthesizer: Rethinking Self-Attention, ICML 2021;
    time T^2 d + T d^2; state T d; path 1; steps 1.
    """

    heads: int = 4
    form: Literal["dense", "random"] = "dense"
    length: int = 512
    hidden: int = 0
    rank: int = 0
    alignment: Part = "softmax"
    dropout: float = 0.0
    kernel: KernelName = "auto"

    parts = {"alignment": ALIGNMENTS}
    lengths = {"length": "covers"}
    capabilities = Capabilities(dropout=True, history=True)

    memory_class = SynthesizerMemory

    def setup(self) -> None:
        """Checks the sizes (raises UserError if they do not fit), and creates the parameters of the
        scores for the chosen `form` (dense, or random, whole or factorised) and the projections of
        values and output.
        """
        head_width("synthesizer", self.width, self.heads)
        at_least(1, "synthesizer", length=self.length)
        at_least(0, "synthesizer", hidden=self.hidden, rank=self.rank)
        h, length, a = self.heads, self.length, self.hidden or self.width // self.heads
        if self.form == "dense":
            self.w_hidden = Dense(h * a)
            self.columns = self.param("columns", _COLUMNS, (h, a, length))
            self.column_bias = self.param("column_bias", nn.initializers.zeros, (h, length))
        elif self.rank:
            self.of_queries = self.param("of_queries", _COLUMNS, (h, length, self.rank))
            self.of_keys = self.param("of_keys", _COLUMNS, (h, length, self.rank))
        else:
            self.scores = self.param("scores", _COLUMNS, (h, length, length))
        self.w_value, self.out = unbiased(2, self.width)
        super().setup()

    def remember(
        self,
        source: jax.Array,
        valid: jax.Array | None = None,
        capacity: int | None = None,
        positions: Where = 0,
    ) -> Any:
        """Computes the memory of a source [B,T,ds], which stores only values, with `capacity` slots
        (T if None); raises UserError for more slots than `length`. See `Attention.remember`.

        Raises:
          UserError: more slots than `length`.
        """
        slots = source.shape[1] if capacity is None else capacity
        if slots > self.length:
            raise UserError(
                f"synthesizer: length={self.length}, but there is a source (or room for a text) of"
                f" {slots} tokens; take length={slots} or more"
            )
        return super().remember(source, valid, capacity, positions)

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """See `Attention.arrays`."""
        return {"values": split(self.w_value(tokens.values), self.heads)}

    def look(
        self, query: jax.Array, memory: Any, view: View, history: Any = None
    ) -> AttentionInputs:
        """Builds the `AttentionInputs` for a query [B,Tq,dq] on a memory: the values of the memory,
        and scores from the query or from learned tables by position, not from keys. See
        `HeadsAttention.look`.
        """
        empty = jnp.zeros((*memory.values.shape[:3], 0), query.dtype)
        return AttentionInputs(
            queries=self.hidden_query(query),
            keys=empty,
            values=memory.values,
            score=self.pairs,
            view=view.onto(memory, query),
            align=self.align,
            drop=self.drop,
            history=history,
        )

    def hidden_query(self, query: jax.Array) -> jax.Array:
        """The hidden layer of query [B,Tq,dq], [B,H,Tq,A]; nothing, [B,H,Tq,0], where only positions
        count.
        """
        if self.form == "random":
            return jnp.zeros((query.shape[0], self.heads, query.shape[1], 0), query.dtype)
        return split(jax.nn.relu(self.w_hidden(query)), self.heads)

    def pairs(self, queries: jax.Array, keys: jax.Array, i: jax.Array, j: jax.Array) -> jax.Array:
        """Computes the scores [B,H,tq,tk] float32 of a block at positions i and j: hidden `queries`
        times learned columns for j plus a bias (dense form), or entries (i, j) of a learned table,
        whole or factorised (random form); `keys` are not used. See `AttentionInputs.score`.
        """
        if self.form == "dense":
            columns, bias = take_at(self.columns, j, 2), take_at(self.column_bias, j, 1)
            return widened(queries @ columns) + widened(bias)[..., None, :]
        if self.rank:
            scores = take_at(self.of_queries, i, 1) @ take_at(self.of_keys, j, 1).swapaxes(-1, -2)
        elif i.ndim == j.ndim == 1:
            scores = jnp.take(jnp.take(self.scores, i, axis=1, mode="clip"), j, 2, mode="clip")
        else:
            i, j = jnp.atleast_2d(i), jnp.atleast_2d(j)
            scores = self.scores.at[:, i[:, :, None], j[:, None, :]].get(mode="clip")
            scores = scores.swapaxes(0, 1)
        return jnp.broadcast_to(widened(scores), (*queries.shape[:3], j.shape[-1]))


def take_at(x: jax.Array, where: jax.Array, axis: int) -> jax.Array:
    """The entries of x at positions [t] along an axis; at [B,t], where rows differ, with B first."""
    entries = jnp.take(x, where, axis=axis, mode="clip")
    return entries if where.ndim == 1 else jnp.moveaxis(entries, axis, 0)
