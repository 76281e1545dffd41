"""The recurrences in NumPy, token by token, of complex numbers too."""

from typing import Any

import numpy as np

Arrays = dict[str, Any]


def delta(data: Arrays, valid: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """o [B,H,T,E] and the last state of q, w, u, g, r (the last two may be missing) and `state`."""
    q, w, u, r, state = (data.get(name) for name in ("q", "w", "u", "r", "state"))
    o = []
    for t in range(q.shape[2]):
        decayed, written = _gate(data, t) * state, u[:, :, t]
        if r is not None:
            written = written - _read(r[:, :, t], decayed)
        after = decayed + _outer(w[:, :, t], written)
        state = after if valid is None else np.where(valid[:, t, None, None, None], after, state)
        o.append(_read(q[:, :, t], state))
    return np.stack(o, axis=2), state


def dplr(data: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """As `delta`, of q, k, v, g, a, b and `state`."""
    q, k, v, a, b, state = (data[name] for name in (*"qkvab", "state"))
    o = []
    for t in range(q.shape[2]):
        found = _outer(b[:, :, t], _read(a[:, :, t], state))
        state = _gate(data, t) * state + found + _outer(k[:, :, t], v[:, :, t])
        o.append(_read(q[:, :, t], state))
    return np.stack(o, axis=2), state


def _gate(data: Arrays, t: int) -> Any:
    if (g := data.get("g")) is None:
        return 1.0
    return np.exp(g[:, :, t, :, None] if g.ndim == 4 else g[:, :, t, None, None])


def _read(x: np.ndarray, state: np.ndarray) -> np.ndarray:
    return np.einsum("bhd,bhde->bhe", x, state)


def _outer(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.einsum("bhd,bhe->bhde", x, y)
