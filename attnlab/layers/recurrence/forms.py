"""The recurrences in the form that is best for their sizes.

    chunk = 1     a scan over tokens
    chunk = n     chunks of n tokens, any number
    chunk = 0     `chosen`: measured

All agree within rounding, with a state before the first token or without, and carried over from
piece to piece. Everything is computed in the inner precision (`layers.dense`).

Axis letters: B batch, H heads, T tokens, D rows of the state, E columns of the state.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from attnlab.layers.dense import inner_dtype
from attnlab.layers.recurrence.chunks import Chunks, delta_chunks, dplr_chunks

ON_CPU = 2**16  # numbers that a group of chunks takes at once
ELSEWHERE = 2**26  # a guess for accelerators, where nothing was measured
Step = Callable[[jax.Array, Any], tuple[jax.Array, jax.Array]]


def recur(
    q: jax.Array,
    w: jax.Array,
    u: jax.Array,
    g: jax.Array | None = None,
    r: jax.Array | None = None,
    *,
    state: jax.Array | None = None,
    valid: jax.Array | None = None,
    chunk: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Computes o_t = q_t^T S_t,  S_t = (I - w_t r_t^T) Diag(e^{g_t}) S_{t-1} + w_t u_t^T.

    Args:
      q, w: what is read, and where is written, [B,H,T,D]; [B,1,T,D] if all heads share it.
      u: what is written, [B,H,T,E].
      g: logarithms of gates, at most 0: [B or 1,H,T] one for a head, or [B or 1,H,T,D]; None for no
        gates.
      r: what is erased, [B,H,T,D]; None for nothing (I in place of I - w r^T).
      state: S before the first token, [B,H,D,E]; None for zeros.
      valid: [B,T] bool; a token that is not real leaves the state as it is, exactly. Its o is that
        of its q.
      chunk: see above.

    Returns:
      o [B,H,T,E] and S after the last token [B,H,D,E], in the inner precision.
    """
    inputs = (_neutral(x, valid) for x in (w, u, _columns(g), r))
    return _run(delta_step, delta_chunks, (q, *inputs), state, chunk)


def recur_dplr(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    g: jax.Array | None,
    a: jax.Array,
    b: jax.Array,
    *,
    state: jax.Array | None = None,
    valid: jax.Array | None = None,
    chunk: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Computes o_t = q_t^T S_t,  S_t = Diag(e^{g_t}) S_{t-1} + b_t (a_t^T S_{t-1}) + k_t v_t^T: a
    diagonal plus a matrix of low rank.

    Args:
      q, k: [B,H,T,D]. v: [B,H,T,E].
      g: as in `recur`.
      a, b: [B,H,T,D].
      state, valid, chunk: as in `recur`.

    Returns:
      As `recur`.
    """
    inputs = (_neutral(x, valid) for x in (k, v, _columns(g), a, b))
    return _run(dplr_step, dplr_chunks, (q, *inputs), state, chunk)


def empty(rows: int, heads: int, depth: int, columns: int, dtype: Any) -> jax.Array:
    """S before the first token: zeros [rows,heads,depth,columns], in the inner precision of
    `dtype`.
    """
    return jnp.zeros((rows, heads, depth, columns), inner_dtype(jnp.zeros((), dtype)))


def chosen(length: int, erases: bool) -> int:
    """Returns the chunk size for `length` tokens, smaller where the recurrence also erases."""
    return min(length, 32 if erases else 64)


def _run(
    step: Step, chunked: Any, inputs: tuple[Any, ...], state: jax.Array | None, chunk: int
) -> tuple[jax.Array, jax.Array]:
    """Computes the outputs [B,H,T,E] and the last state of a recurrence over `inputs` (arrays
    [B,H,T,...] or None) from `state` (None: zeros), in chunks of `chunk` tokens (0: 64, or 32 if it
    erases) with the function `chunked`, or token by token with `step` if `chunk` or T is 1.
    """
    length, columns = inputs[0].shape[2], inputs[2].shape[-1]
    kind = inner_dtype(*(x for x in inputs if x is not None))
    inputs = jax.tree.map(lambda x: x.astype(kind), inputs)
    size = chunk or chosen(length, step is dplr_step or inputs[-1] is not None)
    first = _zeros(inputs) if state is None else state.astype(kind)
    if size == 1 or length < 2:
        if not length:
            return jnp.zeros((*first.shape[:2], 0, columns), kind), first
        return scanned(step, _whole(inputs), first)
    size = min(size, length)
    rows, heads, depth, width = first.shape
    numbers, count = rows * heads * size * (size + depth + width), -(-length // size)
    on_cpu, elsewhere = (
        functools.partial(_in_groups, chunked, size, -(-count // max(1, limit // numbers)))
        for limit in (ON_CPU, ELSEWHERE)
    )
    if on_cpu.args == elsewhere.args:
        return on_cpu(inputs, first)
    return jax.lax.platform_dependent(inputs, first, cpu=on_cpu, default=elsewhere)


def delta_step(state: jax.Array, now: Any) -> tuple[jax.Array, jax.Array]:
    """Computes one step of `recur`, S <- e^g S, S <- S + w (u - r^T S)^T, o = q^T S, from the
    `state` S [B,H,D,E] and the token's arrays `now` = (q, w, u, g, r); returns the next state and o
    [B,H,E]; g [B,H,1 or D] and r may be None.
    """
    q, w, u, g, r = now
    state = _decayed(state, g)
    written = u if r is None else u - _of_state(r, state)
    state = state + w[..., None] * written[..., None, :]
    return state, _of_state(q, state)


def dplr_step(state: jax.Array, now: Any) -> tuple[jax.Array, jax.Array]:
    """Computes one step of `recur_dplr`, S <- e^g S + b (a^T S)^T + k v^T, o = q^T S, from the
    `state` S [B,H,D,E] and the token's arrays `now` = (q, k, v, g, a, b); returns the next state
    and o [B,H,E].
    """
    q, k, v, g, a, b = now
    reading = _of_state(a, state)
    state = _decayed(state, g) + b[..., None] * reading[..., None, :]
    state = state + k[..., None] * v[..., None, :]
    return state, _of_state(q, state)


def scanned(step: Step, inputs: Any, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Runs `step` (state and inputs of a token to the next state and o) over the tokens of
    `inputs`, each [B,H,T,...] or None, from `state`, in a scan unless there is one token; returns o
    [B,H,T,E] and the last state.
    """
    length = jax.tree.leaves(inputs)[0].shape[2]
    if length == 1:
        last, o = step(state, jax.tree.map(lambda x: x[:, :, 0], inputs))
        return o[:, :, None], last
    last, o = jax.lax.scan(step, state, jax.tree.map(lambda x: jnp.moveaxis(x, 2, 0), inputs))
    return jnp.moveaxis(o, 0, 2), last


def _of_state(x: jax.Array, state: jax.Array) -> jax.Array:
    """x^T S: [B,H,D] and [B,H,D,E] to [B,H,E]."""
    return (x[..., None] * state).sum(axis=-2)


def _decayed(state: jax.Array, g: jax.Array | None) -> jax.Array:
    return state if g is None else jnp.exp(g)[..., None] * state


def _in_groups(
    chunked: Callable[..., Chunks], size: int, groups: int, inputs: Any, state: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Computes the outputs [B,H,T,E] and the last state of a recurrence over `inputs` [B,H,T,...]
    from `state`, in chunks of `size` tokens by `chunked`, which makes `Chunks`: all at once if
    `groups` is 1, else group after group, each recomputed in the backward pass, so that only states
    are stored.
    """
    length = inputs[0].shape[2]
    count = -(-length // size)
    if groups == 1:
        o, last = chunked(*jax.tree.map(lambda x: _cut(x, count, size), inputs)).outputs(state)
        return o[:, :, :length], last

    def step(state: jax.Array, group: Any) -> tuple[jax.Array, jax.Array]:
        o, state = chunked(*group).outputs(state)
        return state, o

    share = -(-count // groups)
    cut = jax.tree.map(lambda x: _grouped(_cut(x, groups * share, size), groups), inputs)
    last, o = jax.lax.scan(jax.checkpoint(step, prevent_cse=False), state, cut)
    o = jnp.moveaxis(o, 0, 2).reshape(*state.shape[:2], groups * share * size, state.shape[3])
    return o[:, :, :length], last


def _zeros(inputs: tuple[Any, ...]) -> jax.Array:
    q, u = inputs[0], inputs[2]
    return jnp.zeros((*u.shape[:2], q.shape[-1], u.shape[-1]), q.dtype)


def _whole(inputs: tuple[Any, ...]) -> Any:
    """Broadcasts inputs that rows or heads share to each of them, [B,H,T,...]."""
    shape = inputs[2].shape[:3]
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (*shape, x.shape[-1])), inputs)


def _cut(x: jax.Array, count: int, size: int) -> jax.Array:
    """[B,H,T,m] to [B,H,count,size,m], filled up with zeros: steps that leave the state alone."""
    padding = count * size - x.shape[2]
    x = jnp.pad(x, ((0, 0), (0, 0), (0, padding), (0, 0))) if padding else x
    return x.reshape(*x.shape[:2], count, size, x.shape[3])


def _grouped(x: jax.Array, groups: int) -> jax.Array:
    """[B,H,n,C,m] to [groups,B,H,n/groups,C,m]."""
    cut = x.reshape(*x.shape[:2], groups, x.shape[2] // groups, *x.shape[3:])
    return jnp.moveaxis(cut, 2, 0)


def _columns(g: jax.Array | None) -> jax.Array | None:
    """One gate for a head as [B,H,T,1]."""
    return g if g is None or g.ndim == 4 else g[..., None]


def _neutral(x: jax.Array | None, valid: jax.Array | None) -> jax.Array | None:
    """Returns x [B,H,T,n] with zeros at tokens that are not `valid` [B,T] (None: all are)."""
    if x is None or valid is None:
        return x
    return jnp.where(valid[:, None, :, None], x, jnp.zeros((), x.dtype))
