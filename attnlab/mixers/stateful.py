"""What all mixers on `layers.recurrence` share: a state of one size, padding that leaves it alone, and
chunks.

A mixer of this kind says in `steps` what q, w, u, g and r of every token are, and in `outputs` what
becomes of o:

    S_t = (I - w_t r_t^T) Diag(e^{g_t}) S_{t-1} + w_t u_t^T           o_t = q_t^T S_t

Axis letters: B batch, H heads, T tokens of a piece, D rows of the state of a head, E columns, d
width, k taps of a short convolution, n its channels.
"""

import dataclasses
from typing import Any

import flax.linen as nn
import flax.struct
import jax
import jax.numpy as jnp

from attnlab.attention.mixer import Mixer
from attnlab.attention.view import CAUSAL, View
from attnlab.layers.convolution import nothing_before
from attnlab.layers.dense import widened
from attnlab.layers.history import places
from attnlab.layers.recurrence import empty, recur, recur_dplr
from attnlab.mixers.passing import PASSING, one_text

LINEAR = dataclasses.replace(PASSING, maps="effective")
"""The capabilities of a mixer whose o is linear in its values, with one matrix for each head."""


@flax.struct.dataclass
class State:
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
    """The arrays of a piece that `recur` takes, with the values v, u = scale v (with b: `recur_dplr`,
    whose k, v, a are w, u, r); `extras`, what `outputs` needs besides o; and the next
    `State.recent`, None for the one before.
    """

    q: jax.Array
    w: jax.Array
    v: jax.Array
    g: jax.Array | None = None
    r: jax.Array | None = None
    extras: Any = None
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
        self, x: jax.Array, positions: jax.Array, valid: jax.Array | None, recent: jax.Array
    ) -> Steps:
        """Computes the arrays that the recurrence takes, [B,H,T,...], from a piece of the texts.

        Args:
          x: [B,T,d], the piece.
          positions: of its tokens, [T] or [B,T].
          valid: [B,T] bool, for a short convolution; the recurrence itself passes over padding.
          recent: the last inputs of a short convolution.
        """
        raise NotImplementedError

    def outputs(self, o: jax.Array, x: jax.Array, extras: Any) -> jax.Array:
        """Computes y [B,T,d] from o [B,H,T,E] of `recurrence`, in the inner precision.

        Args:
          o: the outputs of the recurrence.
          x: [B,T,d], the piece that they were computed from.
          extras: `Steps.extras` of the piece.
        """
        raise NotImplementedError

    def begin(self, rows: int, room: int, dtype: Any) -> State:
        """Creates the state before the first token of `rows` texts: zeros for the recurrence and
        the short convolution, and no tokens read. See `Mixer.begin`.
        """
        shape = self.shape()
        return State(
            empty(rows, shape.heads, shape.depth, shape.columns, dtype),
            nothing_before(rows, shape.channels, shape.taps, dtype),
            jnp.zeros(rows, jnp.int32),
        )

    def mix(self, x: jax.Array, view: View = CAUSAL, state: Any = None) -> tuple[jax.Array, State]:
        """Mixes a piece x [B,T,d] (its real tokens: `view.valid`): computes its `Steps` and runs
        the recurrence from `state` (None: zeros); returns y [B,T,d] and the new `State`; raises
        UserError for segments. See `Mixer.mix`.
        """
        one_text(self, view)
        self.record_sensitivity(x, view, state)
        at_start = state is None
        state = self.begin(len(x), 0, x.dtype) if state is None else state
        positions, read = places(state.read, x.shape[1], view.valid)
        positions = positions[0] if at_start and view.valid is None else positions  # rows are alike
        steps = self.steps(x, positions, view.valid, state.recent)

        def context_of(v: jax.Array, matrix: Any) -> tuple[jax.Array, Any]:
            start = dataclasses.replace(state, matrix=matrix)
            return self.recurrence(dataclasses.replace(steps, v=v), start, view.valid, at_start)

        micro = max(steps.v.shape[2] // max(x.shape[1], 1), 1)
        o, matrix = self.sum_values(context_of, steps.v, state.matrix, micro)
        recent = state.recent if steps.recent is None else steps.recent.astype(state.recent.dtype)
        return self.outputs(o, x, steps.extras), State(matrix, recent, read)

    def recurrence(
        self, steps: Steps, state: State, valid: jax.Array | None, at_start: bool
    ) -> tuple[jax.Array, Any]:
        """Runs the recurrence over the arrays `steps` of a piece from `state` (zeros if
        `at_start`), which tokens that are not `valid` [B,T] leave alone; returns o [B,H,T,E],
        linear in `steps.v`, and the last S. The norm of the output gets o: a subclass with a skip
        or a normaliser adds them here.

        Args:
          steps: the arrays of the piece, of `steps`.
          state: the state before the piece.
          valid: [B,T] bool, True at real tokens; None means all are.
          at_start: whether `state` is that of `begin`.
        """
        micro = self.shape().micro
        u = steps.v if steps.scale is None else steps.scale * widened(steps.v)
        if valid is not None and micro > 1:
            valid = jnp.repeat(valid, micro, axis=1)
        matrix = None if at_start else state.matrix
        options: Any = {"state": matrix, "valid": valid, "chunk": self.chunk}
        if steps.r is None or steps.b is None:
            o, last = recur(steps.q, steps.w, u, steps.g, steps.r, **options)
        else:
            o, last = recur_dplr(steps.q, steps.w, u, steps.g, steps.r, steps.b, **options)
        return (o if micro == 1 else o[:, :, micro - 1 :: micro]), last


def unit(x: jax.Array, epsilon: float = 1e-6) -> jax.Array:
    """Divides vectors x [...,n] by sqrt(|x|^2 + `epsilon`), in the inner precision: their length is
    then 1, and 0 at 0 with a finite slope.
    """
    wide = widened(x)
    return wide * jax.lax.rsqrt(jnp.square(wide).sum(axis=-1, keepdims=True) + epsilon)
