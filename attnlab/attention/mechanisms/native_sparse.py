"""Native sparse attention, NSA (Yuan et al. 2025): each query looks at means of blocks, at the
tokens of the blocks that these looks found best, and at a window, and mixes the three by gates.

    compressed   block c = tokens c d .. c d + l - 1, all of them before i or i itself;  mean key and mean value
                 p_ic = softmax over c of (q_i . mean key / sqrt(D))              O^cmp = sum_c p_ic mean value
    selected     m_ib = sum over the heads of a group of the sum of p_ic over the blocks c that overlap block b of l' tokens
                 S_i  = the first block, the two latest, and of the others the best by m_ib, n in all
                 O^slc = softmax attention to the tokens j <= i of S_i
    window       O^win = softmax attention to the last w tokens
    y_i = concat over heads of (g^cmp O^cmp + g^slc O^slc + g^win O^win) W_o,    g = sigmoid(x_i W_g) for each head and branch

An overlap counts in units of d, as often as two tilings share one (equation 9). Each branch has keys
and values of its own; queries are shared. A query before the end of the first block has zeros from
the compressed branch. The choice has no gradient; p has, through O^cmp. Of the compressed branch a
memory keeps the sums of every d tokens only, so 4 K D numbers for each token and 2 K D for every d.
Maps have 3 H heads: the compressed ones spread over the tokens of each mean, the selected ones, the
window's. Axis letters: H heads, K key heads, D head width, T tokens, d a stride here and the width
of the model on the card. Cost: three looks, each as multi-head attention's; the selected tokens are
gathered where they are few (`kernels.gathered`). Source: J. Yuan et al., "Native Sparse Attention:
Hardware-Aligned and Natively Trainable Sparse Attention", 2025 (arXiv 2502.11089), equations 5 to
12, with the indices of 9 counted from 0. There a learned MLP with positions in the block compresses;
here it is the mean, as in the implementation of flash-linear-attention. Causal self-attention.
"""

from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np

from attnlab.attention.alignments.moba import routed
from attnlab.attention.alignments.protocol import softmax
from attnlab.attention.kernels.gathered import SPARSE, attended, picked
from attnlab.attention.memories import Memory, with_room, written
from attnlab.attention.positions import POSITIONS
from attnlab.attention.protocol import MAPS, Attention, Capabilities, Reading, head_width
from attnlab.attention.view import EVERYTHING, View, token_positions
from attnlab.config.registry import Part, made
from attnlab.errors import UserError
from attnlab.layers.dense import Dense, inner_dtype, joined, split, unbiased, widened


@flax.struct.dataclass
class SparseMemory(Memory):
    """Tokens [B,2K,Tk,D] of the selected branch and of the window; sums [B,2K,Tk/d,D] float32 of the
    keys and the values of every d tokens of the compressed branch, and how many are real [B,Tk/d].
    """

    keys: jax.Array
    values: jax.Array
    sums: jax.Array
    counts: jax.Array


class NativeSparse(Attention):
    """Three looks with gates; H query heads of width D = width / H.

    Attributes:
      heads: H; must divide the width.
      key_heads: K; must divide H; 0 for K = H.
      compress: l, tokens of a compressed block; a multiple of the stride.
      stride: d, tokens between the beginnings of compressed blocks.
      block: l', tokens of a selected block; a multiple of the stride.
      blocks: n, how many are selected, the first and the two latest counted.
      window: w, the last tokens, the query's own counted.
      positions: a scheme that turns queries and keys ("none" for none).

    Card: heads, selected; Yuan et al., NSA, 2025; time T^2 d + T d^2; state T d K / H; path 1;
    steps 1.
    """

    heads: int = 4
    key_heads: int = 1
    compress: int = 8
    stride: int = 4
    block: int = 16
    blocks: int = 4
    window: int = 32
    positions: Part = "none"

    sums_to = "at most one"  # compressed looks may be at nothing
    parts = {"positions": POSITIONS}
    capabilities = Capabilities(
        roles=frozenset({"self"}),
        directions=frozenset({"causal"}),
        dense=False,
        positions=frozenset({"query_key"}),
    )

    def setup(self) -> None:
        """Checks heads, key heads, `stride`, `compress`, `block`, `blocks` and `window` against
        each other (raises UserError if they do not fit), and creates the
        projections of queries, of keys and values for three branches, and of gates, and the
        position scheme.
        """
        head_width("native_sparse", self.width, self.heads)
        if self.key_heads < 0 or self.heads % (self.key_heads or 1):
            raise UserError(
                f"native_sparse: heads={self.heads} is not divisible by key_heads={self.key_heads}"
            )
        least = {
            "stride": 1,
            "compress": self.stride,
            "block": self.stride,
            "blocks": 3,
            "window": 1,
        }
        for field, low in least.items():
            value = getattr(self, field)
            if value < low or (field in ("compress", "block") and value % self.stride):
                raise UserError(
                    f"native_sparse: {field}={value}; it must be at least {low}, and compress and"
                    f" block multiples of stride={self.stride}"
                )
        shared, size = self.shared(), self.size()
        self.w_query, self.out = unbiased(2, self.width)
        self.w_key, self.w_value = unbiased(2, 3 * shared * size)
        self.w_gate = Dense(3 * self.heads, use_bias=False)
        self.scheme = made(POSITIONS, self.positions)(name="positions")

    @nn.nowrap
    def size(self) -> int:
        """D."""
        return self.width // self.heads

    @nn.nowrap
    def shared(self) -> int:
        """K."""
        return self.key_heads or self.heads

    def projected(self, source: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Keys and values [B,3K,t,D]: K of the compressed branch, the selected one, the window."""
        keys = self.scheme.of_key(split(self.w_key(source), 3 * self.shared()), positions)
        return keys, split(self.w_value(source), 3 * self.shared())

    def pooled(self, keys: jax.Array, values: jax.Array, real: jax.Array) -> jax.Array:
        """The compressed branch's keys and values side by side, 0 at padding, [B,2K,t,D] float32."""
        pairs = jnp.concatenate([x[:, : self.shared()] for x in (keys, values)], axis=1)
        return jnp.where(real[:, None, :, None], widened(pairs), 0.0)

    def remember(  # type: ignore[override]
        self, source: jax.Array, valid: jax.Array | None = None, capacity: int | None = None
    ) -> SparseMemory:
        """Computes keys and values of a source [B,T,ds] that begins at position 0, and returns in a
        `SparseMemory` those of the selected and the window branch, and of the compressed branch
        only the sums, with the number of real tokens, for every `stride` tokens. See
        `Attention.remember`.
        """
        filled, length = written(source, valid, capacity)
        slots = filled.shape[1]
        keys, values = self.projected(source, token_positions(0, source.shape[1]))
        real = jnp.asarray(filled)
        chunks = -(-slots // self.stride)
        room = chunks * self.stride
        tokens = with_room(self.pooled(keys, values, real[:, : source.shape[1]]), room)
        counts = jnp.pad(real, ((0, 0), (0, room - slots))).astype(tokens.dtype)
        return SparseMemory(
            filled,
            length,
            keys=with_room(keys[:, self.shared() :], slots),
            values=with_room(values[:, self.shared() :], slots),
            sums=tokens.reshape(*tokens.shape[:2], chunks, self.stride, self.size()).sum(axis=3),
            counts=counts.reshape(len(counts), chunks, self.stride).sum(axis=2),
        )

    def extend(
        self, memory: SparseMemory, source: jax.Array, valid: jax.Array | None = None
    ) -> SparseMemory:
        """Returns the memory with keys and values of more tokens, source [B,t,ds]: those of the
        selected and the window branch appended, those of the compressed branch added to its sums
        and counts for every `stride` tokens. See `Attention.extend`.
        """
        keys, values = self.projected(source, memory.following(source.shape[1]))
        real = jnp.ones(source.shape[:2], bool) if valid is None else valid
        if np.ndim(memory.length):  # padding takes no slot
            slot = memory.length[:, None] + jnp.cumsum(real, axis=1) - 1
        else:
            slot = jnp.broadcast_to(memory.length + jnp.arange(source.shape[1]), real.shape)
        chunk = jnp.where(real, slot // self.stride, memory.counts.shape[1])
        tokens = self.pooled(keys, values, real)
        add = jax.vmap(lambda old, index, new: old.at[..., index, :].add(new, mode="drop"))
        first = jnp.arange(memory.counts.shape[1]) * self.stride
        in_use = first < jnp.asarray(memory.length).reshape(-1, 1)  # the others may hold anything
        counts = jnp.where(in_use, memory.counts, 0.0)[..., None]
        sums = jnp.where(in_use[:, None, :, None], memory.sums, 0.0)
        counts = add(counts, chunk, real[..., None].astype(memory.counts.dtype))
        grown: SparseMemory = memory.appended(
            valid, keys=keys[:, self.shared() :], values=values[:, self.shared() :]
        )
        return grown.replace(  # type: ignore[attr-defined,no-any-return]
            sums=add(sums, chunk, tokens.astype(memory.sums.dtype)), counts=counts[..., 0]
        )

    def read(  # type: ignore[override]
        self, query: jax.Array, memory: SparseMemory, view: View = EVERYTHING, weights: bool = False
    ) -> Reading:
        """Computes causal attention of a query [B,Tq,d] to a memory, whatever the view's rule, as a
        gated sum of three branches (means of blocks, selected blocks, a window of recent tokens),
        and returns a `Reading`, with maps of the branches side by side if requested or recorded.
        See `Attention.read`.
        """
        batch, queries, shared = len(query), query.shape[1], self.shared()
        view = view.onto(memory, query)
        mask = (view.columns <= view.rows) & jnp.asarray(memory.valid)[:, None, None]
        q = (
            self.scheme.of_query(split(self.w_query(query), self.heads), view.i)
            * self.size() ** -0.5
        )
        q = q.reshape(batch, shared, self.heads // shared, queries, self.size())
        compressed, p = self.compressed(q, memory, view)
        chosen = self.chosen(p, memory, view)
        mapped = weights or self.is_mutable_collection(MAPS)
        selected, of_selected = self.selected(q, memory, view, mask, chosen, mapped)
        near = mask & (view.rows - view.columns < self.window)
        keys, values = memory.keys[:, shared:], memory.values[:, shared:]
        windowed, of_window = attention(q, keys, values, near[:, :, None])
        gates = jax.nn.sigmoid(widened(self.w_gate(query)))
        gates = gates.reshape(batch, queries, 3, *q.shape[1:3], 1).transpose(2, 0, 3, 4, 1, 5)
        context = sum(g * x for g, x in zip(gates, (compressed, selected, windowed), strict=True))
        together = jnp.reshape(context, (batch, self.heads, queries, self.size()))
        out = self.out(joined(together).astype(query.dtype))
        if not mapped:
            return Reading(out)
        maps = [self.spread(p, memory), of_selected, of_window]
        flat = [x.reshape(batch, self.heads, queries, mask.shape[-1]) for x in maps]
        return Reading(out, self.capture(jnp.concatenate(flat, axis=1), memory, weights))

    def blocks_of(self, memory: SparseMemory) -> tuple[jax.Array, jax.Array]:
        """Adds up the memory's sums and counts of strides to compressed blocks that overlap, one
        from each stride on, and returns the sums of keys and values [B,2K,Nc,D] and the numbers of
        real tokens [B,Nc].
        """
        parts, count = self.compress // self.stride, memory.counts.shape[1]
        sums = jnp.pad(memory.sums, ((0, 0), (0, 0), (0, parts - 1), (0, 0)))
        counts = jnp.pad(memory.counts, ((0, 0), (0, parts - 1)))
        return (
            sum((sums[:, :, m : m + count] for m in range(1, parts)), sums[:, :, :count]),
            sum((counts[:, m : m + count] for m in range(1, parts)), counts[:, :count]),
        )

    def compressed(
        self, q: jax.Array, memory: SparseMemory, view: View
    ) -> tuple[jax.Array, jax.Array]:
        """Attends from scaled queries q [B,K,G,Tq,D] to the mean key and value of each compressed
        block that ends at or before the query, and returns the context [B,K,G,Tq,D] and weights p
        [B,K,G,Tq,Nc].
        """
        sums, counts = self.blocks_of(memory)
        means = sums / jnp.maximum(counts, 1.0)[:, None, :, None]
        ends = jnp.arange(counts.shape[1]) * self.stride + self.compress - 1
        mask = (ends <= view.rows) & (counts > 0.0)[:, None, None]
        keys, values = means[:, : self.shared()], means[:, self.shared() :]
        return attention(widened(q), keys, values, mask[:, :, None])

    def chosen(self, p: jax.Array, memory: SparseMemory, view: View) -> jax.Array:
        """Selects for each query up to `blocks` blocks of `block` tokens, bool [B,K,Tq,N]: the
        first, its own, the one before, and the earlier ones of largest importance by the weights p
        [B,K,G,Tq,Nc] of compressed blocks.
        """
        valid = jnp.asarray(memory.valid)
        count = -(-valid.shape[1] // self.block)
        valid = jnp.pad(valid, ((0, 0), (0, count * self.block - valid.shape[1])))
        visible = valid.reshape(len(valid), 1, 1, count, self.block).any(axis=-1)
        parts, unit = self.compress // self.stride, self.block // self.stride
        rated = importance(jax.lax.stop_gradient(p).sum(axis=2), count, parts, unit)
        current, number = view.rows // self.block, jnp.arange(count)
        rated = jnp.where((number == 0) | (number == current - 1), jnp.inf, rated)
        return routed(rated, visible, current, self.blocks)

    def selected(
        self,
        q: jax.Array,
        memory: SparseMemory,
        view: View,
        mask: jax.Array,
        chosen: jax.Array,
        mapped: bool,
    ) -> tuple[jax.Array, Any]:
        """Attends from scaled queries q to the tokens of the `chosen` blocks [B,K,Tq,N] that `mask`
        shows, and returns the context [B,K,G,Tq,D] and weights [B,K,G,Tq,Tk], None where the keys
        are gathered (long memories, not `mapped`).

        Args:
          q: [B,K,G,Tq,D], scaled queries.
          memory: of the text.
          view: of the look.
          mask: bool, which slots a query may see.
          chosen: bool [B,K,Tq,N], the blocks of each query.
          mapped: whether the weights are needed.
        """
        keys, values = (x[:, : self.shared()] for x in (memory.keys, memory.values))
        slots = keys.shape[2]
        if mapped or slots < SPARSE * self.blocks * self.block:
            visible = jnp.repeat(chosen, self.block, axis=-1)[..., :slots] & mask
            return attention(q, keys, values, visible[:, :, None])
        index, real = picked(chosen, self.blocks)
        slot = index[..., None] * self.block + jnp.arange(self.block)
        slot = slot.reshape(*index.shape[:3], index.shape[3] * self.block)
        existing = jnp.minimum(slot, slots - 1)
        valid = jnp.asarray(memory.valid)[:, None, None]
        valid = jnp.take_along_axis(
            jnp.broadcast_to(valid, (*existing.shape[:3], slots)), existing, axis=-1
        )
        allowed = (
            jnp.repeat(real, self.block, axis=-1) & valid & (slot < slots) & (slot <= view.rows)
        )
        context, _ = attended(q, keys, values, index[:, :, None], allowed[:, :, None], self.block)
        return context, None

    def spread(self, p: jax.Array, memory: SparseMemory) -> jax.Array:
        """Distributes the weights p [B,K,G,Tq,Nc] of compressed blocks equally over their real
        tokens: weights of tokens [B,K,G,Tq,Tk].
        """
        valid = jnp.asarray(memory.valid)
        start = np.arange(p.shape[-1])[:, None] * self.stride
        slot = np.arange(valid.shape[1])[None]
        inside = jnp.asarray((start <= slot) & (slot < start + self.compress), p.dtype)
        counts = jnp.maximum(self.blocks_of(memory)[1], 1.0)[:, None, None, None]
        return (p / counts) @ inside * valid[:, None, None, None]


def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, allowed: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Computes softmax attention of scaled q [B,K,G,Tq,D] to k and v [B,K,Tk,D] under a mask
    `allowed`, broadcastable to the weights: context [B,K,G,Tq,D] and weights [B,K,G,Tq,Tk],
    float32.
    """
    inner = inner_dtype(q, k)
    scores = jnp.einsum("bkgqd,bktd->bkgqt", q, k, preferred_element_type=inner)
    weights = softmax(scores, allowed)
    low = weights.astype(v.dtype)
    return jnp.einsum("bkgqt,bktd->bkgqd", low, v, preferred_element_type=inner), weights


def importance(p: jax.Array, blocks: int, parts: int, unit: int) -> jax.Array:
    """Computes the importance [...,N] of N = `blocks` blocks of `unit` strides from the weights p
    [...,Nc] of compressed blocks of `parts` strides, for block j the sum of p[unit j + m - n] over
    m < unit and n < parts.
    """
    spare = max(unit * blocks - p.shape[-1], 0)
    padded = jnp.pad(p, [(0, 0)] * (p.ndim - 1) + [(parts - 1, spare)])
    total = jnp.zeros((*p.shape[:-1], blocks), p.dtype)
    for offset in range(unit + parts - 1):
        # how often m - n = offset - (parts - 1)
        times = min(offset + 1, unit, parts, unit + parts - 1 - offset)
        total += times * padded[..., offset : offset + unit * (blocks - 1) + 1 : unit][..., :blocks]
    return total
