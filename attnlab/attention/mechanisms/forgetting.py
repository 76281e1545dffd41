"""Forgetting attention (Lin, Nikishin, He, Courville 2025): multi-head attention in which every
token decides how much of what came before it is forgotten.

    f_t  = sigmoid(s_t W_f + b_f)                one for each head        c_t = sum over t' <= t of log f_t'
    e_ij = score(q_i, k_j) + c_i - c_j           j <= i; then as in multi-head attention

The weights before they are divided by their sum are those of multi-head attention times the product
of f over the tokens behind j, up to i. f = 1 is attention without positions, a constant f = exp(-m)
ALiBi with the slope m. So no position scheme is needed; any may be set besides. c is float32
whatever the tokens are; a padded token forgets nothing. In float32 c of some thousands is exact to
about 5e-4. Cost: multi-head attention, one more projection [d,H] of the source and 2 FLOPs for each
pair. Parameters: (d + 1) H more. Memory for decoding: H numbers more per token. Source: Z. Lin, E.
Nikishin, X. O. He, A. Courville, "Forgetting Transformer: Softmax Attention with a Forget Gate",
ICLR 2025 (arXiv 2503.02130), section 3. The gates' kernel starts at N(0, 0.02), b_f at 0, so f at
about one half. Its "Pro" block (norms of queries and keys, an output gate, shifted keys and values)
is not here; the score `qk_rmsnorm` is the first of these. Causal, as in the paper.
"""

from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.mechanisms.multihead import OF_CAUSAL_TEXTS, MultiHead, MultiHeadMemory
from attnlab.attention.protocol import Tokens
from attnlab.attention.view import View, in_order, out_of_order
from attnlab.layers.dense import Dense, widened


@flax.struct.dataclass
class ForgettingMemory(MultiHeadMemory):
    """decay: c [B,K,Tk,H/K] float32."""

    decay: jax.Array


class Forgetting(MultiHead):
    """Multi-head attention with a forget gate for each head; fields as in `MultiHead`.

    Card: heads, forgetting; Lin et al., Forgetting Transformer, ICLR 2025; time T^2 d + T d^2;
    state T d K / H; path 1; steps 1.
    """

    capabilities = OF_CAUSAL_TEXTS

    memory_class = ForgettingMemory

    def setup(self) -> None:
        super().setup()
        self.w_forget = Dense(self.heads, kernel_init=nn.initializers.normal(0.02))

    def logs(self, source: jax.Array, valid: jax.Array | None) -> jax.Array:
        """log f [B,H,t] float32 of a source [B,t,ds], 0 at padding."""
        log_f = jax.nn.log_sigmoid(widened(self.w_forget(source))).transpose(0, 2, 1)
        return log_f if valid is None else jnp.where(valid[:, None], log_f, 0.0)

    def grouped(self, x: jax.Array) -> jax.Array:
        """x [B,H,t] as [B,K,t,H/K]."""
        batch, heads, steps = x.shape
        shared = self.key_heads or heads
        return x.reshape(batch, shared, heads // shared, steps).swapaxes(2, 3)

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """Computes from `Tokens` a dict of the arrays that a memory stores: "keys" and "values" as
        in multi-head attention, and "decay", the running sum c of the logarithms of forget gates up
        to each token, continuing from the memory before. See `Attention.arrays`; the gates are of
        the array for keys.
        """
        logs, inverse = self.logs(tokens.keys, tokens.valid), None
        if not tokens.ordered:
            logs, inverse = in_order(logs, jnp.atleast_2d(tokens.positions))
        decay = self.grouped(out_of_order(jnp.cumsum(logs, axis=-1), inverse))
        if tokens.memory is not None:
            decay = self.last(tokens.memory) + decay
        return {**super().arrays(tokens), "decay": decay}

    def last(self, memory: ForgettingMemory) -> jax.Array:
        """c of the last token of a memory, [B,K,1,H/K]; 0 of an empty one."""
        length = jnp.asarray(memory.length).reshape(-1, 1, 1, 1)
        last = jnp.broadcast_to(jnp.maximum(length - 1, 0), (*memory.decay.shape[:2], 1, 1))
        return jnp.where(length > 0, jnp.take_along_axis(memory.decay, last, axis=2), 0.0)

    def look(
        self, query: jax.Array, memory: MultiHeadMemory, view: View, history: Any = None
    ) -> AttentionInputs:
        """Builds the `AttentionInputs` for a query [B,Tq,dq] on a memory as multi-head attention
        does, with score_ij + c_i - c_j in place of the score, c the running sum of logarithms of
        forget gates up to a token. See `MultiHead.look`.
        """
        assert isinstance(memory, ForgettingMemory)
        look = super().look(query, memory, view, history)
        flat = memory.decay.swapaxes(2, 3).reshape(len(query), self.heads, memory.decay.shape[2])
        at_queries = self.reached(flat, look.view)

        def score(queries: Any, keys: Any, i: jax.Array, j: jax.Array) -> jax.Array:
            """Computes the scores of multi-head attention, plus c of the query less c of the key."""
            (q, query_decay), (k, grouped) = queries, keys
            batch, _, count, _ = grouped.shape
            decay = grouped.swapaxes(2, 3).reshape(batch, self.heads, 1, count)
            return look.score(q, k, i, j) + (query_decay - decay)

        return look.replace(
            queries=(look.queries, at_queries[..., None]),
            keys=(memory.keys, memory.decay),
            score=score,
            product=False,
            bias=None,
        )

    def reached(self, decay: jax.Array, view: View) -> jax.Array:
        """Returns for each query, [B,H,Tq], the entry of the running sums `decay` [B,H,Tk] at the
        last written key whose position is not after the query's position, 0 if there is none;
        positions are in the view.
        """
        if not decay.shape[-1]:
            return jnp.zeros((*decay.shape[:2], view.size[0]), decay.dtype)
        ordered, _ = in_order(decay, view.keys)
        written = jnp.asarray(view.written).reshape(-1, 1, 1)
        reach = jnp.minimum((view.columns <= view.rows).sum(axis=-1), written)  # [B or 1,1,Tq]
        index = jnp.broadcast_to(jnp.maximum(reach - 1, 0), (*decay.shape[:2], view.size[0]))
        return jnp.where(reach > 0, jnp.take_along_axis(ordered, index, axis=-1), 0.0)
