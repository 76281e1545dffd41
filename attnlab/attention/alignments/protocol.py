"""What an alignment is: a function from the scores of a query to the weights of its keys.

Axis letters: B batch, H heads, Tq queries, Tk keys, dq width of the query.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.cards import Card, Cost, Sizes
from attnlab.attention.view import View

# the variable collection to which an alignment that samples writes, while it is mutable (see
# `reinforce`)
SAMPLES = "samples"


class Alignment(nn.Module):
    """Base of every alignment.

    A random draw takes the stream "sample" and happens exactly when the caller passes it.

    Attributes of the class:
      form: how a weight depends on scores. "normalised": exp(e_j) over a sum that may hold more
        than the keys (`extra`), so that blockwise kernels apply; "elementwise": on its own score
        only, and on how many keys the query may see (`View.seen`); "row": on the whole row of its
        query; "fixed": on no score at all; "look": on the rows of earlier queries too, so that all
        queries must come at once, or what they leave be carried from look to look (`no_looks`,
        `go_on`).
      sums_to: "one" (over the keys that may be seen and stand in the alignment's window, where
        there are any), "at most one", or "any".
      looks_at: what beside scores and mask changes the weights. "positions": where queries and keys
        stand, so that the order of the source matters; "lengths": the length of the source, so that
        a source that grows changes what was read from it before.
      card: where it comes from.
    """

    form: ClassVar[Literal["normalised", "elementwise", "row", "look", "fixed"]] = "row"
    sums_to: ClassVar[Literal["one", "at most one", "any"]] = "one"
    looks_at: ClassVar[frozenset[str]] = frozenset()
    card: ClassVar[Card]

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Scores [B,H,Tq,Tk] and a boolean mask broadcastable to them (True may be seen, None
        allows all) to weights [B,H,Tq,Tk]. The view tells who asks, and where queries and keys
        stand.

        In float32. Masked entries get exactly 0; a row with nothing allowed is all zeros, with zero
        gradients.
        """
        raise NotImplementedError

    def no_looks(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Of the form "look": what is carried before the first query, for weights [B,H,_,Tk] of
        this `shape` (B, H, Tk); arrays that lead with B.
        """
        raise NotImplementedError

    def go_on(
        self, scores: jax.Array, mask: jax.Array | None, view: View, so_far: Any
    ) -> tuple[jax.Array, Any]:
        """Of the form "look": as `__call__`, after the queries that left `so_far`, and what these
        leave.
        """
        raise NotImplementedError

    def extra(self, heads: int) -> jax.Array | None:
        """Of the form "normalised": [H], the logarithm of what stands in the denominator beside the
        keys; None for nothing.
        """
        return None

    @nn.nowrap
    def cost(self, at: Sizes) -> Cost:
        """Parameters and FLOPs, see `cards`."""
        raise NotImplementedError(f"{type(self).__name__} declares no cost")


def whole(mask: jax.Array | None, keys: int) -> jax.Array:
    """The mask as an array whose last axis is Tk, so that it can be counted along it; None
    allows all.
    """
    allowed = jnp.ones((), bool) if mask is None else mask
    return jnp.broadcast_to(allowed, (*allowed.shape[:-1], keys))
