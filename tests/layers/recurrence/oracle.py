"""The recurrences in NumPy, token by token, with their gradients by hand."""

from typing import Any

import numpy as np

Arrays = dict[str, Any]


def delta(data: Arrays, valid: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """o [B,H,T,E] and the last state of q, w, u, g, r (the last two may be missing) and `state`."""
    o, states, _ = _delta_loop(data, valid)
    return o, states[-1]


def delta_slopes(data: Arrays, of_o: np.ndarray, of_last: np.ndarray) -> Arrays:
    """Gradients of sum(o * of_o) + sum(last * of_last)."""
    _, states, actual = _delta_loop(data, None)
    q, w, r, g = data["q"], data["w"], data.get("r"), data.get("g")
    slopes = {name: np.zeros(x.shape) for name, x in data.items()}
    slope = of_last.copy()
    for t in reversed(range(q.shape[2])):
        decayed, written = actual[t]
        slope = slope + _outer(q[:, :, t], of_o[:, :, t])
        slopes["q"][:, :, t] = _times(states[t + 1], of_o[:, :, t])
        slopes["w"][:, :, t] = _times(slope, written)
        of_written = _read(w[:, :, t], slope)
        slopes["u"][:, :, t] = of_written
        if r is not None:
            slopes["r"][:, :, t] = -_times(decayed, of_written)
            slope = slope - _outer(r[:, :, t], of_written)
        slope = _through_gate(slopes, g, t, slope, decayed)
    return slopes | {"state": slope}


def dplr(data: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """As `delta`, of q, k, v, g, a, b and `state`."""
    o, states = _dplr_loop(data)
    return o, states[-1]


def dplr_slopes(data: Arrays, of_o: np.ndarray, of_last: np.ndarray) -> Arrays:
    """As `delta_slopes`."""
    _, states = _dplr_loop(data)
    q, k, v, a, b = (data[name] for name in "qkvab")
    slopes = {name: np.zeros(x.shape) for name, x in data.items()}
    slope = of_last.copy()
    for t in reversed(range(q.shape[2])):
        before = states[t]
        slope = slope + _outer(q[:, :, t], of_o[:, :, t])
        slopes["q"][:, :, t] = _times(states[t + 1], of_o[:, :, t])
        slopes["k"][:, :, t] = _times(slope, v[:, :, t])
        slopes["v"][:, :, t] = _read(k[:, :, t], slope)
        slopes["b"][:, :, t] = _times(slope, _read(a[:, :, t], before))
        of_found = _read(b[:, :, t], slope)
        slopes["a"][:, :, t] = _times(before, of_found)
        decayed = _gate(data.get("g"), t) * before
        slope = _through_gate(slopes, data.get("g"), t, slope, decayed)
        slope = slope + _outer(a[:, :, t], of_found)
    return slopes | {"state": slope}


def _delta_loop(data: Arrays, valid: np.ndarray | None) -> tuple[np.ndarray, list[Any], list[Any]]:
    """o, the states before and after every step, and what every step decays to and writes."""
    q, w, u, r = data["q"], data["w"], data["u"], data.get("r")
    state = data.get("state", np.zeros((*q.shape[:2], q.shape[-1], u.shape[-1])))
    states, actual, o = [state], [], np.zeros(u.shape)
    for t in range(q.shape[2]):
        decayed, written = _gate(data.get("g"), t) * state, u[:, :, t]
        if r is not None:
            written = written - _read(r[:, :, t], decayed)
        after = decayed + _outer(w[:, :, t], written)
        state = after if valid is None else np.where(valid[:, t, None, None, None], after, state)
        o[:, :, t] = _read(q[:, :, t], state)
        states.append(state)
        actual.append((decayed, written))
    return o, states, actual


def _dplr_loop(data: Arrays) -> tuple[np.ndarray, list[Any]]:
    q, k, v, a, b = (data[name] for name in "qkvab")
    state = data.get("state", np.zeros((*q.shape[:2], q.shape[-1], v.shape[-1])))
    states, o = [state], np.zeros(v.shape)
    for t in range(q.shape[2]):
        actual = _read(a[:, :, t], state)
        state = _gate(data.get("g"), t) * state + _outer(b[:, :, t], actual)
        state = state + _outer(k[:, :, t], v[:, :, t])
        o[:, :, t] = _read(q[:, :, t], state)
        states.append(state)
    return o, states


def _through_gate(slopes: Arrays, g: Any, t: int, slope: np.ndarray, decayed: Any) -> np.ndarray:
    """The slope of the state before the gate of step t; that of the gate goes to `slopes`."""
    if g is not None:
        of_gate = (slope * decayed).sum(axis=-1)
        slopes["g"][:, :, t] = of_gate if g.ndim == 4 else of_gate.sum(axis=-1)
    return _gate(g, t) * slope


def _gate(g: Any, t: int) -> Any:
    if g is None:
        return 1.0
    return np.exp(g[:, :, t, :, None] if g.ndim == 4 else g[:, :, t, None, None])


def _read(x: np.ndarray, state: np.ndarray) -> np.ndarray:
    return np.einsum("bhd,bhde->bhe", x, state)


def _times(state: np.ndarray, x: np.ndarray) -> np.ndarray:
    return np.einsum("bhde,bhe->bhd", state, x)


def _outer(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.einsum("bhd,bhe->bhde", x, y)
