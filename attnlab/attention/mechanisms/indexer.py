"""Sparse attention with a lightning indexer (DeepSeek-AI 2025): a small scorer without values rates
all keys for a query, and attention looks at the best ones only.

    I_ij = sum over h of w_ih relu(p_ih . r_j)        p = x W_p [h,A],  w = x W_w / sqrt(h A) [h],  r = LayerNorm(s W_r) [A]
    S_i  = the k allowed keys with the largest I_ij;  of equal ones the first
    y_i  = multi-head attention of query i to the keys in S_i

The choice has no gradient, so the indexer learns by a loss of its own, the auxiliary loss
"indexer": KL(p_i || softmax over S_i of I_ij), p_ij the weights summed over heads and divided by H.
It reaches the indexer only: its inputs and p are cut off from the model, and the loss of the task
does not reach the indexer. `--config.auxiliary.indexer=1` turns it on. With `selects=False`, the
paper's warm-up, every key is attended to, and the loss is over all of them. k of at least the number
of keys is multi-head attention. Axis letters: H heads, K key heads, D head width, h and A heads and
width of the indexer (n and c on the card). Cost: h (2 A + 3) FLOPs for each pair of query and key
and a sort, not for each head; then multi-head attention, in training over all keys with a mask, and
where that is less work over gathered keys (see `kernels.gathered`). Memory for decoding: A numbers
more per token. Source: DeepSeek-AI, "DeepSeek-V3.2: Pushing the Frontier of Open Large Language
Models", 2025 (arXiv 2512.02556), section 2.1. There the main attention is latent attention, and the
indexer's queries come from its latent, part of both sides is rotated, and it runs in 8 bits; here
the main attention is multi-head, and the indexer knows no positions.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import LOW, Softmax, full_mask, log_softmax
from attnlab.attention.alignments.relatives import largest
from attnlab.attention.interventions import weights_changed
from attnlab.attention.kernels.gathered import SPARSE, attended
from attnlab.attention.kernels.plain import AttentionInputs, plain
from attnlab.attention.mechanisms.multihead import MultiHead, MultiHeadMemory
from attnlab.attention.protocol import MAPS, Reading, Tokens
from attnlab.attention.view import EVERYTHING, View
from attnlab.errors import at_least
from attnlab.layers.dense import Dense, inner_dtype, widened


@flax.struct.dataclass
class IndexedMemory(MultiHeadMemory):
    """index: r [B,1,Tk,A]."""

    index: jax.Array


class Indexer(nn.Module):
    """I_ij of queries and keys.

    Attributes:
      heads, width: h and A.
    """

    heads: int
    width: int

    def setup(self) -> None:
        self.w_query = Dense(self.heads * self.width, use_bias=False)
        self.w_share = Dense(self.heads, use_bias=False)
        self.w_key = Dense(self.width, use_bias=False)
        self.norm = nn.LayerNorm(epsilon=1e-6, use_fast_variance=False, param_dtype=float)

    def of_key(self, source: jax.Array) -> jax.Array:
        """r [B,1,Tk,A]."""
        source = jax.lax.stop_gradient(source)
        return self.norm(self.w_key(source))[:, None].astype(source.dtype)

    def __call__(self, query: jax.Array, keys: jax.Array) -> jax.Array:
        """Computes the rating [B,Tq,Tk] float32 of every key for every query, sum over index heads
        h of s_h relu(p_h^T r), from the query [B,Tq,dq], projected to p and to s (times 1 /
        sqrt(heads width)), and index keys r [B,1,Tk,A]; no gradient reaches the query.
        """
        query = jax.lax.stop_gradient(query)
        p = self.w_query(query).reshape(*query.shape[:2], self.heads, self.width)
        share = widened(self.w_share(query)) * (self.heads * self.width) ** -0.5
        inner = inner_dtype(p, keys)
        fits = jnp.einsum("bqha,bka->bhqk", p, keys[:, 0], preferred_element_type=inner)
        return jnp.einsum("bqh,bhqk->bqk", share, jax.nn.relu(fits))


class LightningIndexer(MultiHead):
    """Multi-head attention to the keys that an indexer chooses; other fields as in `MultiHead`.

    Attributes:
      keep: k, the keys a query looks at.
      index_heads: h, heads of the indexer.
      index_width: A, their width.
      selects: whether only the chosen keys are looked at; False for the warm-up of the indexer.

    Card: heads, selected; DeepSeek-AI, DeepSeek-V3.2, 2025; time T^2 (d + n c + log T) + T d^2;
    state T (d K / H + c); path 1; steps 1.
    """

    keep: int = 16
    index_heads: int = 2
    index_width: int = 8
    selects: bool = True

    kernels = ("auto", "plain")
    capabilities = dataclasses.replace(MultiHead.capabilities, history=False, window=False)

    memory_class = IndexedMemory

    def setup(self) -> None:
        sizes = {"index_heads": self.index_heads, "index_width": self.index_width}
        at_least(1, "lightning_indexer", keep=self.keep, **sizes)
        super().setup()
        self.indexer = Indexer(self.index_heads, self.index_width)

    def arrays(self, tokens: Tokens) -> dict[str, jax.Array]:
        """See `Attention.arrays`; the indexer looks at the array for keys."""
        return {**super().arrays(tokens), "index": self.indexer.of_key(tokens.keys)}

    def read(
        self,
        query: jax.Array,
        memory: MultiHeadMemory,
        view: View = EVERYTHING,
        weights: bool = False,
        history: Any = None,
    ) -> Reading:
        """Computes attention of a query [B,Tq,dq] to the `keep` keys of a memory that the indexer
        rates highest (to all keys while it does not select), and returns a `Reading` with the loss
        "indexer" [B,Tq] that trains the indexer. See `Attention.read`.
        """
        assert isinstance(memory, IndexedMemory)
        history = self.initial_history(memory) if history is None else history
        look = self.look(query, memory, view, history)
        rated = self.indexer(query, memory.index)
        mask = look.view.allowed()
        shared = mask is None or mask.shape[1] == 1
        mask = jnp.ones((1, 1), bool) if mask is None else mask.any(axis=1)
        allowed = jnp.broadcast_to(full_mask(mask, rated.shape[-1]), rated.shape)  # of some head
        if not weights and shared and self.gathers(look):
            context, loss = self.gathered(look, rated, allowed)
            return Reading(self.out(self.join(context, query)), losses={"indexer": loss})
        if self.selects and rated.shape[-1]:
            allowed &= largest(jax.lax.stop_gradient(jnp.where(allowed, rated, LOW)), self.keep)
            look = look.replace(between=narrowed(look, allowed))
        context, head_weights, history = plain(look, self)
        losses = {"indexer": divergence(head_weights.sum(axis=1), rated, allowed)}
        context = self.out(self.join(context, query))
        return Reading(context, self.capture(head_weights, memory, weights), losses, history)

    def gathers(self, look: AttentionInputs) -> bool:
        """Returns whether the chosen keys of the attention inputs `look` are to be gathered in
        place of masking the others: true if keys are selected, the memory is long, the kernel is
        "auto", scores are plain inner products, the alignment is softmax without dropout, and no
        maps, history or interventions on weights are needed.
        """
        able = look.product and look.bias is None and look.relative is None and look.between is None
        able &= type(look.align) is Softmax and look.history is None and not self.drop.active
        whole_maps = self.is_mutable_collection(MAPS) or self.is_initializing()
        few = self.selects and look.view.size[1] >= SPARSE * self.keep
        whole_maps |= weights_changed()
        return able and few and not whole_maps and self.kernel == "auto"

    def gathered(
        self, look: AttentionInputs, rated: jax.Array, allowed: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Gathers for each query the `keep` keys with the largest ratings `rated` among the
        `allowed` keys, both [B,Tq,Tk], attends to these keys of `look` alone, and returns the
        context [B,H,Tq,D] and the loss of the indexer [B,Tq].

        Args:
          look: all inputs of the kernel.
          rated: [B,Tq,Tk], the indexer's ratings.
          allowed: [B,Tq,Tk] bool, which keys a query may see.
        """
        best = jax.lax.stop_gradient(jnp.where(allowed, rated, LOW))
        index = jax.lax.top_k(best, self.keep)[1]  # [B,Tq,k]
        real = jnp.take_along_axis(allowed, index, axis=-1)
        q, k = jax.tree.leaves(look.queries)[0], look.keys
        batch, heads, queries, width = q.shape
        grouped = q.reshape(batch, k.shape[1], heads // k.shape[1], queries, width)
        context, head_weights = attended(
            grouped, k, look.values, index[:, None, None], real[:, None, None]
        )
        chosen = jnp.take_along_axis(rated, index, axis=-1)
        loss = divergence(head_weights.sum(axis=(1, 2)), chosen, real)
        return context.reshape(batch, heads, queries, context.shape[-1]).astype(
            look.values.dtype
        ), loss


def narrowed(look: AttentionInputs, chosen: jax.Array) -> Any:
    """Returns a function for the field `between` of attention inputs, from (scores, mask, view) to
    scores and mask: it applies `look.between`, if any, and then masks the keys for which `chosen`
    [B,Tq,Tk] is False.
    """
    first = look.between

    def between(
        scores: jax.Array, mask: jax.Array | None, view: View
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns the scores, and the mask without the keys that are not chosen."""
        scores, mask = (scores, mask) if first is None else first(scores, mask, view)
        return scores, chosen[:, None] if mask is None else mask & chosen[:, None]

    return between


def divergence(weights: jax.Array, rated: jax.Array, allowed: jax.Array) -> jax.Array:
    """Computes for each query, [B,Tq], KL(p || softmax of the ratings `rated`) over the `allowed`
    keys, p the weights [B,Tq,n] divided by their sum and without gradient; 0 where nothing is
    allowed.
    """
    weights = jax.lax.stop_gradient(weights)
    total = weights.sum(axis=-1, keepdims=True)
    p = weights / jnp.where(total == 0.0, 1.0, total)
    entropy = jnp.where(p > 0.0, p * jnp.log(jnp.where(p > 0.0, p, 1.0)), 0.0)
    return (entropy - p * log_softmax(rated, allowed)).sum(axis=-1)
