"""Every form of the recurrences has the values, states and gradients of a loop over tokens in NumPy,
whose gradients are its own slopes along random directions, by complex numbers.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.recurrence import chunks, forms, recur, recur_dplr

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


B, H, T, D, E = 2, 2, 13, 4, 5
CHUNKS = (1, 5, 13, 16)
GATES = {"none": None, "head": (B, H, T), "channel": (B, H, T, D)}


def drawn(names: str, gates: str, seed: int = 0) -> dict[str, Any]:
    """Arrays of these names by shape, and a state; keys as long as 1, so that nothing grows."""
    rng = np.random.default_rng(seed)
    data = {name: rng.normal(size=(B, H, T, E if name in "uv" else D)) for name in names}
    for name in set(names) & set("wkrab"):
        data[name] /= np.linalg.norm(data[name], axis=-1, keepdims=True)
    if (shape := GATES[gates]) is not None:
        data["g"] = -rng.exponential(size=shape)
    return data | {"state": rng.normal(size=(B, H, D, E))}


ALL = (("qwu", "head"), ("qwur", "channel"), ("qkvab", "channel"))  # in these all code runs


def called(data: Any, **fields: Any) -> Any:
    """The recurrence of these arrays, by their names."""
    if "a" in data:
        return recur_dplr(**{"g": None, **data}, **fields)
    return recur(**data, **fields)


def differences(data: Any, chunk: int) -> tuple[float, Any]:
    """The largest of outputs and gradients less the oracle's, each relative to the largest number
    there; and the outputs.
    """
    rng = np.random.default_rng(1)
    of_o, of_last = rng.normal(size=(B, H, T, E)), rng.normal(size=(B, H, D, E))

    @jax.jit
    def both(data: Any, slopes: Any) -> Any:
        actual, pull = jax.vjp(lambda data: called(data, chunk=chunk), data)
        return actual, pull(slopes)[0]

    kind = data["q"].dtype
    actual, slopes = both(data, (of_o.astype(kind), of_last.astype(kind)))
    wide = {name: np.asarray(x, np.float64) for name, x in data.items()}
    loop: Any = dplr if "a" in data else delta
    pairs = [*zip(actual, loop(wide), strict=True)]
    for name, x in [*wide.items()] * 4:  # directions
        way = rng.normal(size=x.shape)
        o, last = loop(wide | {name: x + 1e-30j * way})
        expected = ((o.imag * of_o).sum() + (last.imag * of_last).sum()) / 1e-30
        pairs.append(((np.asarray(slopes[name]) * way).sum(), expected))
    return max(np.abs(a - b).max() / max(1.0, np.abs(b).max()) for a, b in pairs), actual


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("names", ["qwu", "qwur", "qkvab"])
def test_values_states_and_gradients_equal_the_loop(
    names: str, gates: str, chunk: int, float64: None
) -> None:
    assert differences(drawn(names, gates), chunk)[0] < 1e-12


@pytest.mark.parametrize(
    ("names", "gates"), [pytest.param(*ALL[0], marks=pytest.mark.full), *ALL[1:]]
)
def test_in_float32(names: str, gates: str) -> None:
    data = {name: x.astype(np.float32) for name, x in drawn(names, gates).items()}
    difference, actual = differences(data, 5)
    assert difference < 1e-5 and actual[0].dtype == actual[1].dtype == jnp.float32


def test_padding_leaves_the_state_alone_and_pieces_give_what_the_whole_gives(
    float64: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In groups of one chunk too, with heads that share q and w, and gates that rows share."""
    shared = drawn("qwur", "channel")
    shared |= {name: shared[name][:, :1] for name in "qw"} | {"g": shared["g"][:1]}
    valid = np.random.default_rng(2).random((B, T)) < 0.6
    whole = {**shared, **{n: np.broadcast_to(shared[n], (B, H, T, D)) for n in "qwg"}}
    expected, last = delta(whole, valid)

    def run(data: Any, state: Any, valid: Any, chunk: int) -> Any:
        return recur(**{**data, "state": state}, valid=valid, chunk=chunk)

    def piece(first: int, end: int, state: Any, chunk: int, valid: Any = valid) -> Any:
        piece = {n: x[:, :, first:end] for n, x in shared.items() if n != "state"}
        return jax.jit(run, static_argnums=3)(piece, state, valid[:, first:end], chunk)

    monkeypatch.setattr(forms, "ON_CPU", 1)
    for pieces, chunk in (((13,), 3), ((4, 1, 8), 0)):
        state, actual, begin = shared["state"], [], 0
        for length in pieces:
            o, state = piece(begin, begin + length, state, chunk)
            actual.append(o)
            begin += length
        np.testing.assert_allclose(np.concatenate(actual, axis=2), expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(state, last, rtol=0, atol=1e-12)
    for first, chunk in ((0, 3), (5, 0), (5, 1)):
        nothing = piece(first, 13, shared["state"], chunk, np.zeros((B, T), bool))[1]
        np.testing.assert_array_equal(nothing, shared["state"])
    traced = jax.jit(run, static_argnums=3).trace(shared, shared["state"], valid, 3)
    texts = [traced.lower(lowering_platforms=(name,)).as_text() for name in ("cpu", "cuda", "tpu")]
    products = [text.count("stablehlo.dot_general") for text in texts]
    assert products[0] != products[1] == products[2]  # in groups on processors alone


@pytest.mark.parametrize("gates", [pytest.param("head", marks=pytest.mark.full), "channel"])
def test_gates_that_forget_everything_have_finite_gradients(gates: str) -> None:
    """e^{-b} alone would overflow in the first chunk, and 0 * inf be no number."""
    data = {n: x.astype(np.float32) for n, x in drawn("qwur", gates).items()}
    data["g"] = np.full_like(data["g"], -50.0)
    slope = jax.jit(jax.grad(lambda data: recur(**data, chunk=13)[0].sum()))(data)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slope))


def test_equal_keys_are_inverted_exactly() -> None:
    """Ones below the diagonal: the inverse has -1 there, while the powers of L that squaring takes
    reach 1e17.
    """
    lower = np.tri(64, k=-1, dtype=np.float32)
    actual = jax.jit(chunks.inverse)(lower)
    np.testing.assert_array_equal(actual, np.eye(64) - np.eye(64, k=-1))
