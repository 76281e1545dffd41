"""What an alignment is: a function from the scores of a query to the weights of its keys.

Axis letters: B batch, H heads, Tq queries, Tk keys, dq width of the query.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.cards import Card
from attnlab.attention.view import View

# an alignment that samples writes to this variable collection while it is mutable (see `reinforce`)
SAMPLES = "samples"


class Alignment(nn.Module):
    """Base of every alignment.

    An alignment draws random numbers exactly if the caller passes the random stream "sample".

    Attributes of the class:
      form: how a weight depends on scores. "normalised": exp(f e_j) over a sum that may hold more
        than the keys (`extra`), f a factor of the query (`factor`), so that blockwise kernels
        apply; "elementwise": on its own score only, and on how many keys the query may see
        (`View.seen`); "row": on the whole row of its query; "fixed": on no score at all; "look":
        on the rows of earlier queries too, so that all queries must come at once, or a state is
        passed from look to look (`initial_history`, `go_on`).
      sums_to: "one" (over the allowed keys in the window of the alignment, if there are any), "at
        most one", or "any".
      looks_at: what changes the weights besides scores and mask. "positions": of queries and keys,
        so the order of the source matters; "lengths": the length of the source, so earlier weights
        change when the source grows.
      looks_between: it looks at what stands between a key and its query, so both are tokens of one
        sequence, and no query sees a later key.
      meeting: the weights of a head depend on the scores of other heads.
      own_kernel: "MODULE:CLASS" of a kernel that reads only the keys with a weight; "auto" asks it first.
      card: where it comes from.
    """

    form: ClassVar[Literal["normalised", "elementwise", "row", "look", "fixed"]] = "row"
    sums_to: ClassVar[Literal["one", "at most one", "any"]] = "one"
    looks_at: ClassVar[frozenset[str]] = frozenset()
    looks_between: ClassVar[bool] = False
    meeting: ClassVar[bool] = False
    own_kernel: ClassVar[str] = ""
    card: ClassVar[Card]

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Scores [B,H,Tq,Tk] and a boolean mask broadcastable to them (True may be seen, None
        allows all) to weights [B,H,Tq,Tk]. The view has the query, and the positions of queries and
        keys. Computed in float32. Masked entries get exactly 0; a row with nothing allowed is all
        zeros, with zero gradients.
        """
        raise NotImplementedError

    def initial_history(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """For the form "look": the state before the first query, for weights of this `shape` (B, H,
        Tk); arrays with leading axis B.
        """
        raise NotImplementedError

    def go_on(
        self, scores: jax.Array, mask: jax.Array | None, view: View, history: Any
    ) -> tuple[jax.Array, Any]:
        """For the form "look": as `__call__`, but continuing from the state `history`; also returns
        the next state.
        """
        raise NotImplementedError

    def extra(self, heads: int) -> jax.Array | None:
        """For the form "normalised": [H], the logarithm of the additional term of the denominator;
        None for none.
        """
        return None

    def factor(self, seen: jax.Array, heads: int, dtype: Any) -> jax.Array | None:
        """For the form "normalised": [B,H,Tq,1], what the scores of each query are multiplied with,
        given how many keys it may see, `seen` broadcastable to that shape; None for 1.
        """
        return None


def whole(mask: jax.Array | None, keys: int) -> jax.Array:
    """The mask as an array whose last axis is Tk, so that it can be counted along it; None
    allows all.
    """
    allowed = jnp.ones((), bool) if mask is None else mask
    return jnp.broadcast_to(allowed, (*allowed.shape[:-1], keys))
