"""Softmax attention to a few keys of each query: only these are gathered, scored and summed.

    y_i = sum over j in I_i of softmax over I_i of (q_i . k_j) v_j

`attended` is the function for chosen blocks of keys; the kernel `gathered` is it for the alignment
`moba`, which chooses blocks by their mean key. Queries are taken some at a time, and their keys
gathered again for the gradients, so memory grows with the length and not with its square. `Windows`
is the kernel for a window around one position of the source (`alignments.local`): the result is that
of plain up to rounding, since all other weights are exactly 0, and "auto" takes it where the window
is at most half of the keys.

Axis letters: B batch, H heads, K key heads, G = H / K, Tq queries, Tk keys, A and Dv widths, N blocks
of b keys, n chosen blocks, W = 2 D + 1 keys of a window. Cost: 4 D n b FLOPs for each query and head;
for `moba` also 2 D for each block; of windows 2 D + 1 pairs for a query in place of Tk, and the keys
and values of each window copied once. Source: E. Lu et al., "MoBA: Mixture of Block Attention for
Long-Context LLMs", 2025 (arXiv 2502.13189); J. Yuan et al., "Native Sparse Attention", 2025 (arXiv
2502.11089).
"""

from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.local import Local
from attnlab.attention.alignments.moba import MoBA, routed
from attnlab.attention.alignments.protocol import softmax
from attnlab.attention.kernels.blocks import padded
from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.kernels.tracing import hoisted
from attnlab.attention.view import number
from attnlab.attention.visibility.rule import Causal
from attnlab.layers.dense import Dropout, inner_dtype

NUMBERS = 2**20  # numbers of gathered keys at a time, of all rows and key heads
# with so many keys for each chosen one, gathering was measured to be faster; docs/kernels.md has the
# figures
SPARSE = 8
INSTEAD = "kernel='plain' and kernel='auto' do"


class Gathered:
    """The alignment `moba` over inner products, in a causal sequence from position 0 on."""

    weighs = False

    def misfit(self, alignment: Any) -> str | None:
        """Why it cannot compute a class of alignments; None if it can."""
        if alignment is MoBA:
            return None
        return f"chooses no blocks by {alignment.__name__}; {INSTEAD}, or choose 'moba'"

    def refuses(self, inputs: AttentionInputs) -> str | None:
        """Returns None if the kernel can compute the attention `inputs` (alignment `MoBA`, causal
        rule without segments, inner products without bias, position values or changes of rows, no
        dropout, keys from position 0), else a message (text) why not and what to choose.
        """
        reason = self.misfit(type(inputs.align))
        if reason:
            return reason
        if not inputs.product or inputs.bias is not None or inputs.relative is not None:
            return f"takes inner products without a bias of positions; {INSTEAD}"
        if inputs.between is not None:
            return f"never has whole rows of scores; {INSTEAD}"
        if not isinstance(inputs.drop, Dropout) or inputs.drop.active:
            return f"cannot drop weights; {INSTEAD}, or set dropout=0"
        view = inputs.view
        if view.segments is not None or not isinstance(view.rule, Causal):
            return f"knows the causal rule only; {INSTEAD}"
        if number(view.keys) != 0:
            return f"needs keys that begin at position 0; {INSTEAD}"
        return None

    def pays(self, inputs: AttentionInputs) -> bool:
        """Whether it was measured to be faster than plain: several queries, whose mean keys are made
        once, and far more keys than chosen ones.
        """
        assert isinstance(inputs.align, MoBA)
        queries, keys = inputs.view.size
        return queries > 1 and keys >= 2 * SPARSE * inputs.align.block * inputs.align.blocks

    def __call__(self, inputs: AttentionInputs) -> jax.Array:
        """Computes the context [B,H,Tq,Dv] of the attention `inputs`, whose alignment is
        `MoBA`: chooses blocks for each query by the mean key of each block, gathers their keys and
        values and attends to these alone.
        """
        assert isinstance(inputs.align, MoBA) and inputs.view.valid is not None
        q, k = jax.tree.leaves(inputs.queries)[0], inputs.keys
        batch, heads, queries, width = q.shape
        shared, keys, size = k.shape[1], k.shape[2], inputs.align.block
        count = -(-keys // size)
        valid = padded(jnp.asarray(inputs.view.valid), 1, count * size).reshape(-1, 1, count, size)
        blocks = padded(k, 2, count * size).reshape(batch, shared, count, size, width)
        inner = inner_dtype(q, k)
        counts = valid.sum(axis=-1)
        sums = jnp.where(valid[..., None], jax.lax.stop_gradient(blocks), 0.0)
        means = sums.astype(inner).sum(axis=3) / jnp.maximum(counts, 1)[..., None]
        q = q.reshape(batch, shared, heads // shared, queries, width)
        gates = jnp.einsum("bkgqd,bknd->bkgqn", jax.lax.stop_gradient(q).astype(inner), means)
        rows = inputs.view.rows
        chosen = routed(
            gates.reshape(batch, heads, queries, count),
            counts[:, :, None] > 0,
            rows // size,
            inputs.align.blocks,
        )
        index, is_chosen = picked(chosen, inputs.align.blocks)
        slots = index[..., None] * size + jnp.arange(size)  # positions of the chosen keys
        real = slots < keys
        real &= jnp.take_along_axis(
            padded(jnp.asarray(inputs.view.valid), 1, count * size)[:, None, None],
            slots.reshape(*slots.shape[:3], -1),
            axis=-1,
        ).reshape(slots.shape)
        allowed = is_chosen[..., None] & real & (slots <= rows[..., None])
        # one group for each head: heads of a group choose blocks of their own
        split = (batch, shared, heads // shared, queries, -1)
        context, _ = attended(
            q, k, inputs.values, index.reshape(split), allowed.reshape(split), size
        )
        return context.reshape(batch, heads, queries, -1).astype(inputs.values.dtype)


def picked(chosen: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """Returns the indices of at most `count` chosen entries of the last axis, the first ones first,
    and which of these indices are of chosen entries: chosen [...,N] bool to int32 and bool [...,n],
    n = min(count, N).
    """
    flags, index = jax.lax.top_k(chosen.astype(jnp.int8), min(count, chosen.shape[-1]))
    return index, flags > 0


def attended(
    q: jax.Array, k: jax.Array, v: jax.Array, index: jax.Array, allowed: jax.Array, size: int = 1
) -> tuple[jax.Array, jax.Array]:
    """Computes softmax attention of scaled q to the `allowed` keys of the blocks (of `size` keys)
    numbered `index` in k and v: context [B,K,G,Tq,Dv] and weights [B,K,G,Tq,n*size], float32.

    Args:
      q: scaled queries [B,K,G,Tq,A]; k [B,K,Tk,A]; v [B,K,Tk,Dv].
      index: [B,1 or K,1 or G,Tq,n], the numbers of chosen blocks of `size` keys.
      allowed: [B,1 or K,1 or G,Tq,n*size] bool, which of their keys may be seen.
      size: b, keys of a block.
    """
    queries, chosen = q.shape[3], index.shape[-1]
    count = -(-k.shape[2] // size)
    blocks = [
        padded(x, 2, count * size).reshape(*x.shape[:2], count, size * x.shape[-1]) for x in (k, v)
    ]

    def some(q: jax.Array, index: jax.Array, allowed: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Computes context and weights of some of the queries q, whose keys are gathered at once;
        `index` and `allowed` are theirs.
        """
        keys, values = (_take_blocks(x, index, size) for x in blocks)
        inner = inner_dtype(q, k)
        if index.shape[2] == 1:  # one choice for all heads of a group, without a copy for each
            keys, values, group = keys[:, :, 0], values[:, :, 0], ""
        else:
            group = "g"
        scores = jnp.einsum(f"bkgqa,bk{group}qna->bkgqn", q, keys, preferred_element_type=inner)
        weights = softmax(scores, allowed)
        low = weights.astype(v.dtype)
        context = jnp.einsum(
            f"bkgqn,bk{group}qnd->bkgqd", low, values, preferred_element_type=inner
        )
        return context, weights

    numbers = chosen * size * k.shape[-1] * k.shape[0] * k.shape[1] * index.shape[2]
    step = max(NUMBERS // max(numbers, 1), 1)
    if queries <= step:
        return some(q, index, allowed)
    parts = -(-queries // step)
    pieces = [
        jnp.moveaxis(
            padded(x, 3, parts * step).reshape(*x.shape[:3], parts, step, x.shape[-1]), 3, 0
        )
        for x in (q, index, allowed)
    ]
    outputs = jax.lax.map(lambda part: jax.checkpoint(some)(*part), tuple(pieces))
    context, weights = (
        jnp.moveaxis(x, 0, 3).reshape(*x.shape[1:4], parts * step, x.shape[-1])[:, :, :, :queries]
        for x in outputs
    )
    return context, weights


def _take_blocks(blocks: jax.Array, index: jax.Array, size: int) -> jax.Array:
    """Takes blocks [B,K,N,b*A] by index [B,1 or K,1 or G,Tq,n]: their keys [B,K,1 or G,Tq,n*b,A]."""
    index = jnp.broadcast_to(index, (*blocks.shape[:2], *index.shape[2:]))
    entries = jax.vmap(jax.vmap(lambda x, chosen: x[chosen]))(blocks, index)
    return entries.reshape(*index.shape[:-1], index.shape[-1] * size, -1)


class Windows:
    """Local alignments over the keys that they see."""

    weighs = False

    def refuses(self, inputs: AttentionInputs) -> str | None:
        """Returns None if gathering the keys in each query's window can compute the attention
        `inputs` and saves work (a `Local` alignment with one window for all heads of a query, of at
        most half of the keys, keys at 0, 1, ..., 1 or H heads of values without positions, no
        dropout), else a message (text) why not.
        """
        view, heads, shared = inputs.view, _heads(inputs), inputs.values.shape[1]
        align = inputs.align
        if not isinstance(align, Local) or (align.of_heads and heads > 1):
            return "needs one window for all heads of a query"
        if 2 * (2 * align.reach + 1) > view.size[1]:
            return "saves nothing, the window is more than half of the keys"
        if number(view.keys) != 0 or inputs.relative is not None or shared not in (1, heads):
            return "needs keys that stand at 0, 1, ..., values without positions, and heads alike"
        dropping = isinstance(inputs.drop, Dropout) and not inputs.drop.active
        return None if dropping else "draws no dropout"

    def pays(self, inputs: AttentionInputs) -> bool:
        """Always, where it is not refused."""
        return True

    def __call__(self, inputs: AttentionInputs) -> jax.Array:
        """Computes the context [B,H,Tq,Dv] of the attention `inputs`, whose alignment is a
        `Local`: gathers the keys and values in the window of each query, and scores and sums these
        alone.
        """
        view, align = inputs.view, inputs.align
        assert isinstance(align, Local)
        batch, keys = inputs.values.shape[0], view.size[1]
        centre, position = align.centres(view, _heads(inputs))
        columns = centre + jnp.arange(-align.reach, align.reach + 1, dtype=jnp.int32)
        columns = jnp.broadcast_to(columns[:, 0], (batch, *columns.shape[2:]))  # [B,Tq,W]
        inside, slots = (columns >= 0) & (columns < keys), jnp.clip(columns, 0, keys - 1)

        def gathered(x: jax.Array) -> jax.Array:
            """The windows of x [B,K,Tk,...], [B,K,Tq,W,...]."""
            return jax.vmap(lambda x, slots: x[:, slots])(x, slots)

        mask = inside & jax.vmap(lambda valid, slots: valid[slots])(jnp.asarray(view.valid), slots)
        near = jax.tree.map(gathered, inputs.keys)
        scores, rules = self.scored(inputs, near, slots)
        mask = mask[:, None] if rules is None else mask[:, None] & rules
        weights = align.weights(scores, mask, slots[:, None], position).astype(inputs.values.dtype)
        values = jnp.broadcast_to(
            gathered(inputs.values), (*weights.shape, inputs.values.shape[-1])
        )
        return jnp.einsum("bhqw,bhqwd->bhqd", weights, values)

    def scored(
        self, inputs: AttentionInputs, keys_near: Any, slots: jax.Array
    ) -> tuple[jax.Array, jax.Array | None]:
        """Computes the scores [B,H,Tq,W] of each query with W gathered keys, in the tree
        `keys_near` of [B,K,Tq,W,...], at positions `slots` [B,Tq,W], and returns them with a bool
        array of the pairs that the visibility rule allows, or None for all.
        """
        i = inputs.view.i
        i = jnp.broadcast_to(i, slots.shape[:2])

        queries = jax.tree.map(lambda x: x[:, :, :1], inputs.queries)
        keys = jax.tree.map(lambda x: x[:, :, 0], keys_near)
        pure, closed = hoisted(inputs.score, queries, keys, i[:, :1], slots[:, 0])
        score = jax.vmap(
            lambda q, k, i, j: pure(
                closed, jax.tree.map(lambda x: x[:, :, None], q), k, i[:, None], j
            )[:, :, 0],
            in_axes=(2, 2, 1, 1),
            out_axes=2,
        )
        scores = score(inputs.queries, keys_near, i, slots)
        if inputs.view.allows(i[:, :1], slots[:, 0]) is None:
            return scores, None
        allowed = jax.vmap(
            lambda i, j: jnp.asarray(inputs.view.allows(i[:, None], j))[:, :, 0],
            in_axes=(1, 1),
            out_axes=2,
        )
        return scores, allowed(i, slots)


def _heads(inputs: AttentionInputs) -> int:
    """H."""
    return int(jax.tree.leaves(inputs.queries)[0].shape[1])
