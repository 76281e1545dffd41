"""The recurrences token by token: one step for decoding, and a scan.

Axis letters: B batch, H heads, T tokens, D rows of the state, E columns of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Step = Callable[[jax.Array, Any], tuple[jax.Array, jax.Array]]


def delta_step(state: jax.Array, now: Any) -> tuple[jax.Array, jax.Array]:
    """Computes one step of `recur`, S <- e^g S, S <- S + w (u - r^T S)^T, o = q^T S: from the state
    S [B,H,D,E] and the token's q, w, u, g, r the next state and o [B,H,E]. g [B,H,1 or D] and r may
    be None.
    """
    q, w, u, g, r = now
    state = _decayed(state, g)
    written = u if r is None else u - _of_state(r, state)
    state = state + w[..., None] * written[..., None, :]
    return state, _of_state(q, state)


def dplr_step(state: jax.Array, now: Any) -> tuple[jax.Array, jax.Array]:
    """Computes one step of `recur_dplr`, S <- e^g S + b (a^T S)^T + k v^T, o = q^T S: from the
    state S [B,H,D,E] and the token's q, k, v, g, a, b the next state and o [B,H,E].
    """
    q, k, v, g, a, b = now
    reading = _of_state(a, state)
    state = _decayed(state, g) + b[..., None] * reading[..., None, :]
    state = state + k[..., None] * v[..., None, :]
    return state, _of_state(q, state)


def scanned(step: Step, inputs: Any, state: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Runs `step` over the tokens of `inputs`, each [B,H,T,...] or None, from `state`; returns o
    [B,H,T,E] and the last state; one token needs no loop.
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
