"""Looks at a window around one position of the source (`alignments.local`): only the keys and values
in it are gathered, scored and summed.

The result is that of plain up to rounding, since all other weights are exactly 0. "auto" takes it
where the window is at most half of the keys. Cost: 2 D + 1 pairs for a query in place of Tk, and
the keys and values of each window copied once. Axis letters: B batch, H heads, K key heads, Tq
queries, Tk keys, W = 2 D + 1.
"""

from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.local import Local
from attnlab.attention.kernels.plain import AttentionInputs
from attnlab.attention.kernels.tracing import hoisted
from attnlab.attention.view import number
from attnlab.layers.dense import Dropout


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
