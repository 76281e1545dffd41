"""What an alignment is: a function from the scores of a query to the weights of its keys. The first of
them: softmax, and its relatives with one more term in the denominator.

    softmax             a_ij = exp(e_ij) / sum over the allowed k of exp(e_ik)
    softmax_plus_one    a_ij = exp(e_ij) / (1 + sum_k exp(e_ik))
    sink                a_ij = exp(e_ij) / (exp(b_h) + sum_k exp(e_ik)),  b_h learned, one for each head

The last two let a head attend to nothing: the weights are those of softmax times sigmoid(log sum_k
exp(e_ik) - b_h). b = 0 is softmax_plus_one, b to minus infinity softmax. Unlike softmax they change
if a constant is added to all scores.  Cost: about 5 FLOPs for each pair. Parameters: none, none, H.
Source: D. Bahdanau, K. Cho, Y. Bengio, "Neural Machine Translation by Jointly Learning to Align and
Translate", ICLR 2015, equation 6; E. Miller, "Attention Is Off By One", 2023 (web log); sinks as in
the released code of gpt-oss (OpenAI 2025), here starting at b = 0.

Axis letters: B batch, H heads, Tq queries, Tk keys, dq width of the query.
"""

from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.attention.view import View
from attnlab.layers.dense import inner_dtype, widened

# an alignment that samples writes to this variable collection while it is mutable (see `losses`)
SAMPLES = "samples"


class Alignment(nn.Module):
    """Base of every alignment.

    An alignment draws random numbers exactly if the caller passes the random stream "sample".

    Attributes of the class:
      form: how a weight depends on scores. "normalised": exp(f e_j) over a sum that may hold more
        than the keys (`extra`), f a factor of the query (`factor`), so that blockwise kernels
        apply; "elementwise": on its own score only, and on how many keys the query may see
        (`View.key_counts`); "row": on the whole row of its query; "fixed": on no score at all; "look":
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
    """

    form: ClassVar[Literal["normalised", "elementwise", "row", "look", "fixed"]] = "row"
    sums_to: ClassVar[Literal["one", "at most one", "any"]] = "one"
    looks_at: ClassVar[frozenset[str]] = frozenset()
    looks_between: ClassVar[bool] = False
    meeting: ClassVar[bool] = False
    own_kernel: ClassVar[str] = ""

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """Scores [B,H,Tq,Tk] and a boolean mask broadcastable to them (True may be seen, None
        allows all) to weights [B,H,Tq,Tk]. The view has the query, and the positions of queries and
        keys. Computed in float32. Masked entries get exactly 0; a row with nothing allowed is all
        zeros, with zero gradients. An alignment of the form "look" goes on from `initial_history`.
        """
        shape = *scores.shape[:2], scores.shape[-1]
        first = self.initial_history(shape, inner_dtype(scores))
        return self.go_on(scores, mask, view, first)[0]

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

    def factor(self, counts: jax.Array, heads: int, dtype: Any) -> jax.Array | None:
        """For the form "normalised": [B,H,Tq,1], what the scores of each query are multiplied with,
        given how many keys it may see, `counts` broadcastable to that shape; None for 1.
        """
        return None


def full_mask(mask: jax.Array | None, keys: int) -> jax.Array:
    """Returns a mask, True where a key may be seen (None: everywhere), broadcast to a last axis of
    Tk = `keys`, so that it can be counted along it.
    """
    allowed = jnp.ones((), bool) if mask is None else mask
    return jnp.broadcast_to(allowed, (*allowed.shape[:-1], keys))


LOW = -1e30  # finite in float32: minus infinity would give NaN on a row without allowed keys


class Softmax(Alignment):
    """a_ij = exp(e_ij) / sum_k exp(e_ik) over the allowed keys; no parameters.

    Card: soft; Bahdanau et al., Jointly Learning to Align and Translate, ICLR 2015; time T^2.
    """

    form = "normalised"

    def __call__(self, scores: jax.Array, mask: jax.Array | None, view: View) -> jax.Array:
        """See `Alignment.__call__`."""
        extra = self.extra(scores.shape[1])
        return softmax(scores, mask, None if extra is None else extra[:, None, None])


class SoftmaxPlusOne(Softmax):
    """a_ij = exp(e_ij) / (1 + sum_k exp(e_ik)); no parameters.

    Card: soft, with a sink; Miller, Attention Is Off By One, 2023 (web log); time T^2.
    """

    sums_to = "at most one"

    def extra(self, heads: int) -> jax.Array | None:
        """See `Alignment.extra`."""
        return jnp.zeros(heads, jnp.float32)


class Sink(Softmax):
    """a_ij = exp(e_ij) / (exp(b_h) + sum_k exp(e_ik)), b_h learned from 0.

    Card: soft, with a sink; released code of gpt-oss, OpenAI 2025; time T^2.
    """

    sums_to = "at most one"

    @nn.compact
    def extra(self, heads: int) -> jax.Array | None:
        """See `Alignment.extra`."""
        return widened(self.param("logit", nn.initializers.zeros, (heads,)))


def softmax(scores: jax.Array, mask: jax.Array | None, extra: jax.Array | None = None) -> jax.Array:
    """Computes the softmax [...,Tk] float32 of scores over the last axis, 0 where the boolean mask
    is False (None allows all), with exp(extra) added to the denominator unless `extra` is None; a
    row with nothing allowed is all zeros. That is a_j = exp(e_j) / (exp(extra) + sum over allowed k
    of exp(e_k)).

    Args:
      scores: [..., Tk].
      mask: boolean, broadcastable to the scores; True may be seen. None allows all.
      extra: broadcastable to [..., 1]: one more term of the denominator, as a logarithm; None for
        none.

    Returns:
      Weights [..., Tk] float32: exactly 0 where masked; a row with nothing allowed is all zeros,
        with zero gradients.
    """
    scores = widened(scores)
    if not scores.shape[-1]:
        return scores  # no keys
    if mask is None and extra is None:
        return jax.nn.softmax(scores, axis=-1)
    allowed = jnp.ones((), bool) if mask is None else mask
    scores = jnp.where(allowed, scores, LOW)
    top = scores.max(axis=-1, keepdims=True)
    top = jax.lax.stop_gradient(top if extra is None else jnp.maximum(top, extra))
    raised = jnp.where(allowed, jnp.exp(scores - top), 0.0)
    total = raised.sum(axis=-1, keepdims=True)
    if extra is not None:
        return raised / (total + jnp.exp(extra - top))
    return raised / jnp.where(total == 0.0, 1.0, total)


def log_softmax(scores: jax.Array, mask: jax.Array | None) -> jax.Array:
    """Computes the logarithm [...,Tk] float32 of the masked softmax of scores [...,Tk] over the
    last axis, stable for tiny weights, and 0 where the boolean mask is False (None allows all).
    """
    if not scores.shape[-1]:
        return widened(scores)
    allowed = jnp.ones((), bool) if mask is None else mask
    scores = jnp.where(allowed, widened(scores), LOW)
    below = scores - jax.lax.stop_gradient(scores.max(axis=-1, keepdims=True))
    total = jnp.where(allowed, jnp.exp(below), 0.0).sum(axis=-1, keepdims=True)
    return jnp.where(allowed, below - jnp.log(jnp.where(total == 0.0, 1.0, total)), 0.0)
