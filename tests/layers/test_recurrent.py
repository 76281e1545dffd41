"""The recurrent layers against the equations of Bahdanau et al. 2015, appendix A.1.1, and what
padding must not do.
"""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.recurrent import BidirectionalGRU, ContextGRUCell, GRUCell, GRULayer
from tests.rounding import assert_close

H, E = 5, 3


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(cell: Any, state: np.ndarray, contribution: np.ndarray) -> np.ndarray:
    """h' = (1 - z) h + z tanh(p_n + (r h) U_n) in float64."""
    gates, candidate = (np.asarray(cell[name], np.float64) for name in ("gates", "candidate"))
    p, h = contribution.astype(np.float64), state.astype(np.float64)
    r = sigmoid(p[:, :H] + h @ gates[:, :H])
    z = sigmoid(p[:, H : 2 * H] + h @ gates[:, H:])
    return (1 - z) * h + z * np.tanh(p[:, 2 * H :] + (r * h) @ candidate)


def cell_and_params(seed: int = 1) -> tuple[GRUCell, Any]:
    return GRUCell(H), {"gates": draw(H, 2 * H, seed=seed), "candidate": draw(H, H, seed=seed)}


@pytest.mark.quick
def test_cell_is_the_equations() -> None:
    cell, params = cell_and_params()
    state, contribution = draw(4, H), 2 * draw(4, 3 * H)
    found = cell.apply({"params": params}, state, contribution)
    assert_close(found, reference(params, state, contribution), eps=8)


def test_update_gate_is_the_share_of_the_new() -> None:
    """z = 1 takes the candidate, z = 0 keeps the state; r = 0 hides the state from the
    candidate.
    """
    cell, params = cell_and_params()
    params = {**params, "gates": np.zeros_like(params["gates"])}
    state, p = draw(2, H), draw(2, 3 * H)

    def stepped(reset: float, update: float) -> np.ndarray:
        contribution = np.concatenate(
            [np.full((2, H), reset), np.full((2, H), update), p[:, 2 * H :]], axis=1
        )
        return np.asarray(cell.apply({"params": params}, state, contribution.astype(np.float32)))

    np.testing.assert_allclose(stepped(0.0, -100.0), state, atol=1e-6)
    np.testing.assert_allclose(stepped(-100.0, 100.0), np.tanh(p[:, 2 * H :]), atol=1e-6)
    np.testing.assert_allclose(
        stepped(100.0, 100.0), np.tanh(p[:, 2 * H :] + state @ params["candidate"]), atol=1e-6
    )


@pytest.mark.parametrize("diagonal", [True, False])
def test_agrees_with_flax_only_where_the_reset_gate_may_trade_places(diagonal: bool) -> None:
    """flax resets after the product and lets z keep the old: with z negated they agree for a
    diagonal U and else differ.
    """
    cell, params = cell_and_params()
    candidate = np.diag(np.diag(params["candidate"])) if diagonal else params["candidate"]
    params = {**params, "candidate": candidate}
    state, contribution = draw(4, H), draw(4, 3 * H)
    ours = cell.apply({"params": params}, state, contribution)

    p_r, p_z, p_n = np.split(contribution, 3, axis=1)
    inputs = np.concatenate([p_r, -p_z, p_n], axis=1)  # flax reads them through identity matrices
    eye, zero = np.eye(3 * H, dtype=np.float32), np.zeros(H, np.float32)
    theirs_params = {
        **{
            f"i{name}": {"kernel": eye[:, part], "bias": zero}
            for name, part in zip(
                "rzn", (slice(0, H), slice(H, 2 * H), slice(2 * H, None)), strict=True
            )
        },
        "hr": {"kernel": params["gates"][:, :H]},
        "hz": {"kernel": -params["gates"][:, H:]},
        "hn": {"kernel": candidate, "bias": zero},
    }
    theirs, _ = nn.GRUCell(H).apply({"params": theirs_params}, state, inputs)
    distance = np.abs(np.asarray(ours) - np.asarray(theirs)).max()
    assert distance < 1e-6 if diagonal else distance > 1e-2


def test_recurrent_matrices_start_orthogonal() -> None:
    params = GRUCell(16).init(jax.random.key(0), jnp.zeros((1, 16)), jnp.zeros((1, 48)))["params"]
    with_context = ContextGRUCell(16).init(
        jax.random.key(0), jnp.zeros((1, 16)), jnp.zeros((1, 48)), jnp.zeros((1, 48))
    )["params"]
    r, z = np.split(np.asarray(params["gates"]), 2, axis=1)
    three = np.split(np.asarray(with_context["past"]), 3, axis=1)
    for matrix in (r, z, np.asarray(params["candidate"]), *three):
        np.testing.assert_allclose(matrix.T @ matrix, np.eye(16), atol=1e-5)
    assert (
        np.abs(r - z).max() > 0.1 and min(np.abs(three[0] - three[k]).max() for k in (1, 2)) > 0.1
    )


def test_context_cell_is_the_equations() -> None:
    """h' = (1 - z) h + z tanh(p_n + r (h U_n + q_n)): the reset gate shuts the context out of the
    candidate, not out of the gates.
    """
    past, state, p, q = (
        draw(H, 3 * H, seed=1),
        draw(4, H),
        2 * draw(4, 3 * H),
        2 * draw(4, 3 * H, seed=2),
    )
    found = ContextGRUCell(H).apply({"params": {"past": past}}, state, p, q)
    wide, u, p, q = (np.asarray(one, np.float64) for one in (state, past, p, q))
    r, z = (
        sigmoid(p[:, part] + q[:, part] + wide @ u[:, part])
        for part in (slice(0, H), slice(H, 2 * H))
    )
    new = np.tanh(p[:, 2 * H :] + r * (wide @ u[:, 2 * H :] + q[:, 2 * H :]))
    assert_close(found, (1 - z) * wide + z * new, eps=8)


def test_context_cell_without_context_is_the_unit_of_flax() -> None:
    """Which resets after the product as well; its z keeps the old."""
    past, state, p = draw(H, 3 * H, seed=1), draw(4, H), draw(4, 3 * H)
    ours = ContextGRUCell(H).apply(
        {"params": {"past": past}}, state, p, np.zeros((4, 3 * H), np.float32)
    )
    eye, zero = np.eye(3 * H, dtype=np.float32), np.zeros(H, np.float32)
    parts = {"r": slice(0, H), "z": slice(H, 2 * H), "n": slice(2 * H, None)}
    sign = {"r": 1.0, "z": -1.0, "n": 1.0}
    params: dict[str, Any] = {
        f"i{name}": {"kernel": sign[name] * eye[:, part], "bias": zero}
        for name, part in parts.items()
    }
    params |= {f"h{name}": {"kernel": sign[name] * past[:, part]} for name, part in parts.items()}
    params["hn"]["bias"] = zero
    assert_close(ours, nn.GRUCell(H).apply({"params": params}, state, p)[0], eps=8)


LENGTHS = (6, 3, 1)


@pytest.fixture(scope="module", params=[False, True], ids=["forward", "reverse"])
def layer(request: pytest.FixtureRequest) -> tuple[Any, Any, np.ndarray, np.ndarray, bool]:
    """A jitted layer `run(x, valid)`, its parameters, an input [3,6,E], `valid`, and the
    direction.
    """
    module, reverse = GRULayer(H), request.param
    x, valid = draw(3, 6, E), np.arange(6)[None] < np.array(LENGTHS)[:, None]
    params = jax.tree.map(
        lambda leaf: draw(*leaf.shape, seed=3), module.init(jax.random.key(0), x, valid)["params"]
    )
    return (
        jax.jit(lambda x, valid: module.apply({"params": params}, x, valid, reverse=reverse)),
        params,
        x,
        valid,
        reverse,
    )


def test_layer_is_a_loop_over_real_tokens(layer: Any) -> None:
    """From zero, left to right or from the last real token to the left; each row alone."""
    run, params, x, valid, reverse = layer
    states = np.asarray(run(x, valid))
    for row, length in enumerate(LENGTHS):
        state = np.zeros((1, H), np.float32)
        for t in reversed(range(length)) if reverse else range(length):
            contribution = x[row, t] @ params["of_input"]["kernel"] + params["of_input"]["bias"]
            state = reference(params["cell"], state, contribution[None])
            np.testing.assert_allclose(states[row, t], state[0], atol=2e-6)


def test_state_is_copied_through_padding(layer: Any) -> None:
    """Left to right the last column is the state at the last real token; right to left padding
    keeps the zero it starts from.
    """
    run, _, x, valid, reverse = layer
    states = np.asarray(run(x, valid))
    for row, length in enumerate(LENGTHS):
        expected = np.zeros(H) if reverse else states[row, length - 1]
        for t in range(length, 6):
            np.testing.assert_array_equal(states[row, t], expected)


def test_padding_reaches_nothing(layer: Any) -> None:
    """Garbage in padding changes no state and gets exactly no gradient."""
    run, _, x, valid, _ = layer
    np.testing.assert_array_equal(
        run(np.where(valid[..., None], x, 1e6).astype(np.float32), valid), run(x, valid)
    )
    slope = np.asarray(jax.grad(lambda x: (run(x, valid) ** 2).sum())(x))
    assert (slope[~valid] == 0.0).all() and (np.abs(slope[valid]).max(axis=-1) > 0).all()


def test_both_directions_side_by_side() -> None:
    """The forward half first; the backward half of position 0 has read the whole sentence; each has
    its own parameters.
    """
    module = BidirectionalGRU(H)
    x, valid = draw(3, 6, E), np.arange(6)[None] < np.array(LENGTHS)[:, None]
    params = module.init(jax.random.key(0), x, valid)["params"]
    both = np.asarray(module.apply({"params": params}, x, valid))
    for half, (name, reverse) in enumerate((("forward", False), ("backward", True))):
        alone = GRULayer(H).apply({"params": params[name]}, x, valid, reverse=reverse)
        np.testing.assert_allclose(both[..., half * H : (half + 1) * H], alone, atol=1e-6)
    assert (
        np.abs(
            params["forward"]["cell"]["candidate"] - params["backward"]["cell"]["candidate"]
        ).max()
        > 0.1
    )
    changed = x.copy()
    changed[0, 5] += 1.0
    moved = np.abs(np.asarray(module.apply({"params": params}, changed, valid)) - both)[0]
    assert (moved[:5, :H] == 0.0).all() and moved[0, H:].max() > 1e-4


def test_low_precision_stays_low() -> None:
    module = BidirectionalGRU(H)
    x, valid = jnp.asarray(draw(2, 4, E), jnp.bfloat16), np.ones((2, 4), bool)
    params = jax.tree.map(
        lambda leaf: leaf.astype(jnp.bfloat16), module.init(jax.random.key(0), x, valid)["params"]
    )
    states = module.apply({"params": params}, x, valid)
    assert states.dtype == jnp.bfloat16
    wide = module.apply(
        {"params": jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)},
        x.astype(jnp.float32),
        valid,
    )
    np.testing.assert_allclose(np.asarray(states, np.float32), wide, atol=2e-2)
