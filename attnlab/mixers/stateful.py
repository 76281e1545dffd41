"""What all mixers on `layers.recurrence` share: a state of one size, padding that leaves it alone, and
chunks.

A mixer of this kind says in `steps` what q, w, u, g and r of every token are, and in `outputs` what
becomes of o:

    S_t = (I - w_t r_t^T) Diag(e^{g_t}) S_{t-1} + w_t u_t^T           o_t = q_t^T S_t

Axis letters: B batch, H heads, T tokens of a piece, D rows of the state of a head, E columns, d
width, k taps of a short convolution, n its channels.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Mixer
from attnlab.attention.view import CAUSAL, View
from attnlab.layers.convolution import nothing_before
from attnlab.layers.history import places
from attnlab.layers.precision import widened
from attnlab.layers.recurrence import empty, recur, recur_dplr
from attnlab.mixers.recurrent import PASSING, one_text

LINEAR = dataclasses.replace(PASSING, maps="effective")
"""The capabilities of a mixer whose o is linear in its values, with one matrix for each head."""


@flax.struct.dataclass
class Kept:
    """S [B,H,D,E], or another state of a recurrence, in the inner precision; the last inputs
    [B,k-1,n] of a short convolution, or what else a mixer keeps, [B,...]; and how many tokens were
    read, [B] int32.
    """

    matrix: Any
    recent: jax.Array
    read: jax.Array


@dataclasses.dataclass(frozen=True)
class Shape:
    """H, D and E; k and n of a short convolution, 1 and 0 for none; whether something is erased (r).

    Attributes:
      erases: whether `steps` has r.
      micro: m, steps of the recurrence for each token; `steps` then gives [B,H,m T,...], and o is
        that after the last step of a token.
    """

    heads: int
    depth: int
    columns: int
    taps: int = 1
    channels: int = 0
    erases: bool = False
    micro: int = 1


@flax.struct.dataclass
class Steps:
    """What `recur` takes, with the values v, u = scale v (with b: `recur_dplr`, whose k, v, a are w, u,
    r); what of the piece `outputs` needs besides; and what is kept as `Kept.recent`.
    """

    q: jax.Array
    w: jax.Array
    v: jax.Array
    g: jax.Array | None = None
    r: jax.Array | None = None
    beside: Any = None
    recent: jax.Array | None = None
    b: jax.Array | None = None
    scale: jax.Array | None = None


class Stateful(Mixer):
    """Base of the mixers on `layers.recurrence`; not a mixer by itself.

    Attributes:
      chunk: tokens that are computed at once; 0 for a good number, 1 for a scan over tokens. It does
        not change the result.
    """

    chunk: int = 0

    capabilities = LINEAR

    @nn.nowrap
    def shape(self) -> Shape:
        """The sizes of the state.

        Raises:
          UserError: fields that do not fit each other.
        """
        raise NotImplementedError

    def steps(
        self, x: jax.Array, at: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """A piece x [B,T,d] to what the recurrence takes, [B,H,T,...].

        Args:
          x: the piece.
          at: positions of its tokens, [T] or [B,T].
          valid: [B,T] bool, for a short convolution; the recurrence itself passes over padding.
          recent: the last inputs of a short convolution.
        """
        raise NotImplementedError

    def outputs(self, o: jax.Array, x: jax.Array, beside: Any) -> jax.Array:
        """o of `recurred` [B,H,T,E], in the inner precision, to y [B,T,d]."""
        raise NotImplementedError

    def begin(self, rows: int, room: int, dtype: Any) -> Kept:
        """Creates the state before the first token of `rows` texts: zeros for the recurrence and
        the short convolution, and no tokens read. See `Mixer.begin`.
        """
        of = self.shape()
        return Kept(
            empty(rows, of.heads, of.depth, of.columns, dtype),
            nothing_before(rows, of.channels, of.taps, dtype),
            jnp.zeros(rows, jnp.int32),
        )

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, Kept]:
        """Mixes a piece x [B,T,d]: computes the steps, runs the recurrence from the state (None:
        zeros), and returns y and the new state. See `Mixer.mix`.
        """
        one_text(self, view)
        self.record_sensitivity(x, view, state)
        before = self.begin(len(x), 0, x.dtype) if state is None else state
        at, read = places(before.read, x.shape[1], view.valid)
        at = at[0] if state is None and view.valid is None else at  # the same in all rows
        of = self.steps(x, at, view.valid, before.recent)

        def recurred(v: jax.Array, matrix: Any) -> tuple[jax.Array, Any]:
            given = dataclasses.replace(of, v=v), dataclasses.replace(before, matrix=matrix)
            return self.recurred(*given, view.valid, state is None)

        micro = max(of.v.shape[2] // max(x.shape[1], 1), 1)
        o, matrix = self.sum_values(recurred, of.v, before.matrix, micro)
        recent = before.recent if of.recent is None else of.recent.astype(before.recent.dtype)
        return self.outputs(o, x, of.beside), Kept(matrix, recent, read)

    def recurred(
        self, of: Steps, before: Kept, valid: jax.Array | None, beginning: bool
    ) -> tuple[jax.Array, Any]:
        """Runs the recurrence of a piece on the arrays `of`, from the state `before` (from zeros if
        `beginning`), and returns o [B,H,T,E] and the last state. o is what the norm of the output
        gets, linear in `of.v`: a subclass with a skip or a normaliser adds them here.
        """
        micro = self.shape().micro
        state = None if beginning else before.matrix
        u = of.v if of.scale is None else of.scale * widened(of.v)
        if valid is not None and micro > 1:
            valid = jnp.repeat(valid, micro, axis=1)
        given: Any = {"state": state, "valid": valid, "chunk": self.chunk}
        if of.r is None or of.b is None:
            o, last = recur(of.q, of.w, u, of.g, of.r, **given)
        else:
            o, last = recur_dplr(of.q, of.w, u, of.g, of.r, of.b, **given)
        return (o if micro == 1 else o[:, :, micro - 1 :: micro]), last


def unit(x: jax.Array, epsilon: float = 1e-6) -> jax.Array:
    """x [..., n] / sqrt(|x|^2 + eps), in the inner precision: length 1, and 0 at 0 with a finite
    slope.
    """
    wide = widened(x)
    return wide * jax.lax.rsqrt(jnp.square(wide).sum(axis=-1, keepdims=True) + epsilon)
