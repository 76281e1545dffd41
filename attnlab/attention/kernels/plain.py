"""The plain kernel: all scores, all weights, then the weighted sum; every other kernel must equal
it. Also `AttentionInputs`, the input of a kernel.

Axis letters: B batch, H heads, K key heads (H = K G, query head h reads key head h // G), Tq
queries, Tk keys, Dv value width. Cost: the sum of the parts; memory: some arrays [B,H,Tq,Tk], for
gradients too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.attention.alignments.protocol import Alignment
from attnlab.attention.view import View


@dataclasses.dataclass(frozen=True)
class AttentionInputs:
    """One look at a memory, after all projections.

    Attributes:
      queries: tree of [B,H,Tq,...], keys: tree of [B,K,Tk,...]; what `score` takes.
      values: [B,K,Tk,Dv].
      score: `score(queries, keys, i, j)` -> [B,H,Tq,Tk] float32 for any blocks of queries and keys
        at positions i, j.
      view: the result of `View.onto`: the query, which query may see which key, and which slots of
        the memory hold a real token.
      align: the alignment, or a function around it with the same arguments, whose weights
        [B,H',Tq,Tk] may have another number of heads.
      drop: dropout of weights.
      relative: `relative(weights, i, j)` -> [B,H,Tq,Dv] added to the context (position schemes with
        values), or None.
      product: `score` is the inner product of the first array of `queries` with `keys`, one array,
        plus `bias`.
      history: the state of earlier looks (`history.History`), or None; if a score looks back, the
        look has one query.
      after: `after(past, weights)` of a score that looks back.
      between: `between(scores, mask, view)` -> other scores and another mask, made from whole rows
        of scores: position schemes with the hook "row", selections. None for none.
      bias: `bias(queries, i, j)` -> broadcastable to [B,H,Tq,Tk], that part of `score`; None for
        none. Only where `product`.
    """

    queries: Any
    keys: Any
    values: jax.Array
    score: Callable[[Any, Any, jax.Array, jax.Array], jax.Array]
    view: View
    align: Alignment | Callable[[jax.Array, jax.Array | None, View], jax.Array]
    drop: Callable[[jax.Array], jax.Array]
    relative: Callable[[jax.Array, jax.Array, jax.Array], jax.Array | None] | None = None
    product: bool = False
    bias: Callable[[Any, jax.Array, jax.Array], jax.Array | None] | None = None
    history: Any = None
    after: Callable[[jax.Array, jax.Array], jax.Array] | None = None
    between: Callable[[jax.Array, Any, View], tuple[jax.Array, Any]] | None = None

    def replace(self, **changes: Any) -> AttentionInputs:
        """A copy with other fields."""
        return dataclasses.replace(self, **changes)


class Plain:
    """All scores at once; it can compute every look."""

    weighs = True

    def misfit(self, alignment: Any) -> str | None:
        """Nothing."""
        return None

    def refuses(self, look: AttentionInputs) -> str | None:
        """Nothing."""
        return None

    def __call__(self, look: AttentionInputs) -> jax.Array:
        """The context [B,H,Tq,Dv]."""
        return plain(look)[0]


def plain(look: AttentionInputs) -> tuple[jax.Array, jax.Array]:
    """Context [B,H,Tq,Dv] and weights [B,H,Tq,Tk] float32, before dropout."""
    return plain_on(look)[:2]


def plain_on(look: AttentionInputs) -> tuple[jax.Array, jax.Array, Any]:
    """Context and weights as `plain`, and the state for the next look."""
    weights, history = weigh_on(look)
    dropped = look.drop(weights).astype(look.values.dtype)
    context = unfold(
        jnp.einsum("bkqt,bktd->bkqd", fold(dropped, look.values.shape[1]), look.values),
        weights.shape[1],
    )
    more = look.relative(dropped, look.view.i, look.view.j) if look.relative else None
    return context if more is None else context + more.astype(context.dtype), weights, history


def weigh(look: AttentionInputs) -> jax.Array:
    """The weights [B,H,Tq,Tk] float32, before dropout."""
    return weigh_on(look)[0]


def weigh_on(look: AttentionInputs) -> tuple[jax.Array, Any]:
    """The weights [B,H,Tq,Tk] float32, before dropout, and the state for the next look."""
    view, mask = look.view, look.view.allowed()
    scores = look.score(look.queries, look.keys, view.i, view.j)
    if look.between is not None:
        scores, mask = look.between(scores, mask, view)
    if look.history is None:
        return look.align(scores, mask, view), None
    past, state = look.history.score, look.history.alignment
    if state is None:
        weights = look.align(scores, mask, view)
    else:
        assert isinstance(look.align, Alignment)
        weights, state = look.align.go_on(scores, mask, view, state)
    if past is not None:
        assert look.after is not None
        past = look.after(past, weights[:, :, 0])
    return weights, look.history.replace(score=past, alignment=state)


def fold(x: jax.Array, key_heads: int) -> jax.Array:
    """[B,H,Tq,...] to [B,K,G*Tq,...]: the query heads of a group side by side, so that they share
    the group's keys without a copy.
    """
    return (
        x
        if x.shape[1] == key_heads
        else x.reshape(x.shape[0], key_heads, x.shape[1] // key_heads * x.shape[2], *x.shape[3:])
    )


def unfold(x: jax.Array, heads: int) -> jax.Array:
    """The way back, [B,K,G*Tq,...] to [B,H,Tq,...]."""
    return (
        x
        if x.shape[1] == heads
        else x.reshape(x.shape[0], heads, x.shape[1] * x.shape[2] // heads, *x.shape[3:])
    )
