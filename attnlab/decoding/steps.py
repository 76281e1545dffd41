"""What decoding needs from a model and gives back, and the parts of one step that greedy search,
sampling and beam search share.

Axis letters: B sentences, K hypotheses of a sentence, N = B*K rows a model sees, L target length, S
source length, V vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from attnlab.data.vocabulary import OURS, Special
from attnlab.decoding.rows import NEVER

Tree = TypeVar("Tree")
StepFn = Callable[[Any, Any, jax.Array], tuple[jax.Array, Any, jax.Array | None]]
"""`step(state, memory, tokens [N]) -> (logits [N,V], state, weights [N,S] or None)`.

`tokens` are the ids emitted last (BOS at first). `memory` is constant while decoding. Leaves of
`state` of rank >= 1 have leading axis N and travel with their hypothesis; leaves of rank 0 are step
counters that all rows share.
"""


@struct.dataclass
class Hypotheses:
    """The K best hypotheses of every sentence, best first.

    Attributes:
      tokens: [B,K,L] int32; the EOS is kept, PAD follows it. A hypothesis cut at its length limit
        has no EOS.
      scores: [B,K] float32, what they are sorted by; -inf marks a slot that holds no hypothesis
        (its length is 0).
      log_probs: [B,K] float32, natural log P(Y|X) under the model, over its whole vocabulary and EOS
        counted, as a loss and `Run.scores` have it. PAD and BOS are never chosen.
      lengths: [B,K] int32, tokens emitted, EOS counted.
      alignment: [B,K,L,S] float32, row l the weights with which token l was predicted, 0 after the
        end; None if not requested, or if the step function returns no weights.
    """

    tokens: jax.Array
    scores: jax.Array
    log_probs: jax.Array
    lengths: jax.Array
    alignment: jax.Array | None = None


def emittable(logits: jax.Array, special: Special = OURS) -> jax.Array:
    """Logits [N,V] in float32 with PAD and BOS made impossible, to choose by; log-probabilities are
    those of the model, over the whole vocabulary.
    """
    never = among(jnp.arange(logits.shape[-1]), special.unsayable)
    return jnp.where(never, NEVER, logits.astype(jnp.float32))


def among(ids: jax.Array, chosen: Sequence[int]) -> jax.Array:
    """Returns which of the ids are among the `chosen` ones, bool of the same shape."""
    return jnp.isin(ids, np.array(chosen, np.int32))


def repeat_rows(tree: Any, rows: int, times: int) -> Any:
    """Repeats each row of every array [B,...] of a tree `times` times, to [B*times,...] with the
    copies next to each other; scalars stay as they are; raises `ValueError` if B is not `rows`.

    Raises:
      ValueError: a leaf whose leading axis is not `rows`.
    """
    for leaf in jax.tree.leaves(tree):
        if jnp.ndim(leaf) and leaf.shape[0] != rows:
            raise ValueError(
                f"decoding: every array of state and memory needs leading axis {rows} (the"
                f" sentences), found shape {leaf.shape}"
            )
    if times == 1:
        return tree
    return jax.tree.map(
        lambda leaf: jnp.repeat(leaf, times, axis=0) if jnp.ndim(leaf) else leaf, tree
    )


def take_rows(tree: Any, rows: jax.Array) -> Any:
    """Gathers rows `rows` [M] of every leaf [N,...]; rank 0 stays as it is. On CPU this runs at the
    speed of a copy (15 MB: 0.7 ms).
    """
    return jax.tree.map(
        lambda leaf: leaf.at[rows].get(mode="promise_in_bounds") if jnp.ndim(leaf) else leaf, tree
    )


def by_row(tree: Tree, rows: int) -> Tree:
    """Returns a state or a memory whose shared numbers (tokens so far, length of a cache) are
    broadcast to arrays [rows], one number for each row.

    Rows are then independent: rows of several such trees can be joined in one, each at its own
    step, and each row gets the result it would get alone.
    """
    return jax.tree.map(
        lambda leaf: leaf if jnp.ndim(leaf) else jnp.broadcast_to(jnp.asarray(leaf), (rows,)), tree
    )


def pick(tree: Tree, places: jax.Array) -> Tree:
    """Gathers from every leaf [B,X,...] the indices `places` [B,Y] of axis 1, giving [B,Y,...]."""

    def of_leaf(leaf: jax.Array) -> jax.Array:
        at = places.reshape(places.shape + (1,) * (leaf.ndim - 2))
        return jnp.take_along_axis(leaf, at, axis=1)

    return jax.tree.map(of_leaf, tree)


def length_limits(limits: jax.Array | None, rows: int, max_length: int) -> jax.Array:
    """Returns the most tokens of each sentence, [rows] int32, clipped to 1 to `max_length`; None
    means `max_length` for all.
    """
    if limits is None:
        return jnp.full(rows, max_length, jnp.int32)
    return jnp.clip(jnp.asarray(limits, jnp.int32), 1, max_length)


def weights_buffer(
    step: StepFn, state: Any, memory: Any, rows: int, max_length: int
) -> jax.Array | None:
    """Returns zeros [L,N,S] to collect the attention weights of every step in, or None if `step`
    gives none. Traces `step`, computes nothing.
    """
    weights = jax.eval_shape(step, state, memory, jnp.zeros(rows, jnp.int32))[2]
    return None if weights is None else jnp.zeros((max_length, *weights.shape), jnp.float32)


def put(buffer: jax.Array | None, value: jax.Array | None, t: jax.Array) -> jax.Array | None:
    """Returns `buffer` [L,N,S] with `value` [N,S] written at step `t`; None if either is None."""
    if buffer is None or value is None:
        return None
    return lax.dynamic_update_index_in_dim(buffer, value.astype(buffer.dtype), t, 0)
