"""The LSTM against its equations and against autodiff of the plain loop, and what padding must not
do.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from attnlab.layers.initial import Initial
from attnlab.layers.lstm import LSTMCell, LSTMLayer, LSTMState, gated, recurrence
from attnlab.training.drawing import first_params
from tests.rounding import assert_close

H, E, B, T = 4, 3, 3, 6
LENGTHS = (6, 3, 0)
VALID = np.arange(T)[None] < np.array(LENGTHS)[:, None]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(
    past: np.ndarray, p: np.ndarray, c: np.ndarray, h: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One step of one row in float64, gates in the order i, f, o, g."""
    i, f, o, g = np.split(np.asarray(p, np.float64) + h @ np.asarray(past, np.float64), 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return c, sigmoid(o) * np.tanh(c)


@functools.cache
def layer() -> tuple[LSTMLayer, Any]:
    module = LSTMLayer(H)
    params = module.init(jax.random.key(0), np.zeros((1, 2, E), np.float32))["params"]
    return module, jax.tree.map(lambda leaf: draw(*leaf.shape, seed=3), params)


@functools.partial(jax.jit, static_argnames="reverse")
def run(params: Any, x: Any, valid: Any, start: Any, reverse: bool) -> Any:
    return LSTMLayer(H).apply({"params": params}, x, valid, start, reverse)


def first(seed: int = 5) -> LSTMState:
    return LSTMState(draw(B, H, seed=seed), draw(B, H, seed=seed + 1))  # type: ignore[arg-type]


@pytest.mark.quick
@pytest.mark.parametrize("reverse", [False, True])
def test_layer_is_a_loop_over_real_tokens(reverse: bool) -> None:
    """From the state it is given; each row alone, the empty one too; padding copies the state."""
    _, params = layer()
    x, start = draw(B, T, E), first()
    outputs, last = jax.device_get(run(params, x, VALID, start, reverse))
    for row, length in enumerate(LENGTHS):
        c, h = np.asarray(start.c[row], np.float64), np.asarray(start.h[row], np.float64)
        for t in reversed(range(T)) if reverse else range(T):
            if t < length:
                p = x[row, t] @ params["of_input"]["kernel"]["kernel"] + params["of_input"]["bias"]
                c, h = reference(params["cell"]["past"], p, c, h)
            np.testing.assert_allclose(outputs[row, t], h, atol=2e-6)
        np.testing.assert_allclose(last.c[row], c, atol=2e-6)
        np.testing.assert_array_equal(last.h[row], outputs[row, 0 if reverse else -1])


def test_without_mask_all_are_real_and_a_step_is_a_step() -> None:
    module, params = layer()
    x, start = draw(B, T, E), first()
    outputs, last = run(params, x, None, start, False)
    masked, end = run(params, x, np.ones((B, T), bool), start, False)
    jax.tree.map(np.testing.assert_array_equal, (outputs, last), (masked, end))
    state: Any = start
    step = jax.jit(lambda state, x: module.apply({"params": params}, state, x, method="step"))
    for t in range(T):
        state = step(state, x[:, t])
        np.testing.assert_allclose(state.h, outputs[:, t], atol=1e-6)


def plain(past: Any, contribution: Any, valid: Any, start: Any, reverse: bool) -> Any:
    """What `recurrence` says, for autodiff to take apart."""

    def step(state: Any, inputs: Any) -> Any:
        p, real = inputs
        new = gated(p + state.h @ past, state.c)
        following = jax.tree.map(lambda new, old: jnp.where(real[:, None], new, old), new, state)
        return following, following.h

    last, outputs = jax.lax.scan(step, start, (contribution, valid), reverse=reverse)
    return outputs, last


def weighed(function: Any, reverse: bool) -> Any:
    """A number that outputs and last state all have a share in."""

    def total(past: Any, contribution: Any, start: Any) -> Any:
        outputs, last = function(past, contribution, VALID.T, start, reverse)
        return (
            (outputs * draw(T, B, H, seed=7)).sum()
            + (last.c * draw(B, H, seed=8)).sum()
            + (last.h**2).sum()
        )

    return total


@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_is_that_of_the_plain_loop(reverse: bool) -> None:
    given = draw(H, 4 * H), draw(T, B, 4 * H), first()
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), given)
        found, expected = (
            jax.jit(jax.grad(weighed(one, reverse), argnums=(0, 1, 2)))(*wide)
            for one in (recurrence, plain)
        )
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13),
            found,
            expected,
        )
        assert (np.abs(np.asarray(found[1]))[~VALID.T] == 0.0).all() and (
            np.abs(np.asarray(found[1]))[VALID.T] > 0
        ).all()
        np.testing.assert_array_equal(
            found[2].c[2], draw(B, H, seed=8)[2]
        )  # the empty row hands its slope on as it is


def test_gradient_is_that_of_finite_differences() -> None:
    with jax.enable_x64(True):
        wide = jax.tree.map(
            lambda leaf: jnp.asarray(leaf, jnp.float64),
            (draw(H, 4 * H), draw(T, B, 4 * H), first()),
        )
        check_grads(
            jax.jit(weighed(recurrence, False)), wide, order=1, modes=["rev"], rtol=1e-6, atol=1e-6
        )


def carries(jaxpr: Any) -> list[tuple[int, ...]]:
    """The shapes that loops carry from step to step, at any depth, and those of what they put out
    at every step, which begin with T.
    """
    found = []
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", None)
            if inner is not None:
                found += carries(inner)
        if eqn.primitive.name == "scan":
            found += [var.aval.shape for var in eqn.outvars]
    return found


def test_no_loop_adds_up_the_gradient_of_the_matrix() -> None:
    """Autodiff of the plain loop carries [H,4H] from step to step; ours carries states only."""
    given = draw(H, 4 * H), draw(T, B, 4 * H), first()
    for function, adds in ((recurrence, False), (plain, True)):
        shapes = carries(jax.make_jaxpr(jax.grad(weighed(function, False)))(*given).jaxpr)
        assert (B, H) in shapes and ((H, 4 * H) in shapes) == adds


def test_gradients_of_several_models_and_on_several_devices() -> None:
    """Under vmap over parameters and pmap over rows."""
    several = jax.tree.map(
        lambda *leaves: np.stack(leaves),
        *[jax.tree.map(lambda leaf, k=k: leaf * k, layer()[1]) for k in (0.5, 1.0)],
    )
    x = draw(4, T, E)
    valid = np.arange(T)[None] < np.array([6, 4, 1, 0])[:, None]

    def loss(params: Any, x: Any, valid: Any) -> Any:
        return (LSTMLayer(H).apply({"params": params}, x, valid)[0] ** 2).sum()

    slope = jax.jit(jax.grad(loss))
    alone = [slope(jax.tree.map(lambda leaf, k=k: leaf[k], several), x, valid) for k in range(2)]
    together = jax.jit(jax.vmap(jax.grad(loss), in_axes=(0, None, None)))(several, x, valid)
    jax.tree.map(
        lambda found, *one: np.testing.assert_allclose(found, np.stack(one), atol=1e-5),
        together,
        *alone,
    )
    devices = min(4, jax.local_device_count())
    rows = jax.tree.map(
        lambda leaf: leaf.reshape(devices, 4 // devices, *leaf.shape[1:]), (x, valid)
    )
    spread = jax.pmap(
        lambda params, *rows: jax.lax.psum(jax.grad(loss)(params, *rows), "rows"),
        axis_name="rows",
        in_axes=(None, 0, 0),
    )
    of_rows = spread(jax.tree.map(lambda leaf: leaf[1], several), *rows)
    jax.tree.map(
        lambda found, one: np.testing.assert_allclose(found[0], one, atol=1e-5), of_rows, alone[1]
    )


def test_padding_reaches_nothing() -> None:
    """Garbage in padding changes no output and gets exactly no gradient; all rows may be empty."""
    _, params = layer()
    x, start = draw(B, T, E), first()
    garbage = np.where(VALID[..., None], x, 1e6).astype(np.float32)
    np.testing.assert_array_equal(
        run(params, garbage, VALID, start, False)[0], run(params, x, VALID, start, False)[0]
    )
    slope = np.asarray(
        jax.jit(jax.grad(lambda x: (run(params, x, VALID, start, False)[0] ** 2).sum()))(x)
    )
    assert (slope[~VALID] == 0.0).all() and (np.abs(slope[VALID]).max(axis=-1) > 0).all()
    outputs, last = run(params, x, np.zeros((B, T), bool), start, False)
    np.testing.assert_array_equal(outputs, np.broadcast_to(start.h[:, None], outputs.shape))
    np.testing.assert_array_equal(last.c, start.c)


def test_shut_gates_keep_the_cell() -> None:
    """f = 1 and i = 0 by the biases: c stays what it was."""
    _, params = layer()
    bias = np.repeat(np.array([-1e3, 1e3, 0.0, 0.0], np.float32), H)
    shut = {**params, "of_input": {**params["of_input"], "bias": bias}}
    start = first()
    np.testing.assert_allclose(
        run(shut, draw(B, T, E), None, start, False)[1].c, start.c, atol=1e-6
    )


def test_low_precision_stays_low() -> None:
    """Whatever the start is made of; the gradient too."""
    module, params = layer()
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), params)

    @jax.jit
    def both(params: Any, x: Any) -> Any:
        def total(params: Any) -> Any:
            outputs, last = module.apply({"params": params}, x, VALID, first())
            return outputs.astype(jnp.float32).sum(), (outputs, last)

        return jax.grad(total, has_aux=True)(params)

    slope, (outputs, last) = both(low, jnp.asarray(draw(B, T, E), jnp.bfloat16))
    wide, (expected, _) = both(params, draw(B, T, E))
    assert {leaf.dtype for leaf in jax.tree.leaves((slope, outputs, last))} == {
        jnp.dtype(jnp.bfloat16)
    }
    np.testing.assert_allclose(np.asarray(outputs, np.float32), expected, atol=4e-2)
    one, other = (np.asarray(tree["cell"]["past"], np.float32) for tree in (slope, wide))
    assert np.abs(one - other).max() < 0.05 * np.abs(other).max()


def test_weights_start_as_they_should() -> None:
    """Four orthogonal blocks, an open forget gate; or all uniform, with the open gate or
    without.
    """
    x = np.zeros((1, 2, 16), np.float32)
    params = first_params(LSTMLayer(16).init, jax.random.key(0), x)["params"]
    blocks = np.split(np.asarray(params["cell"]["past"]), 4, axis=1)
    for block in blocks:
        np.testing.assert_allclose(block.T @ block, np.eye(16), atol=1e-5)
    assert np.abs(blocks[0] - blocks[1]).max() > 0.1
    np.testing.assert_array_equal(params["of_input"]["bias"], np.repeat([0.0, 1.0, 0.0, 0.0], 16))
    for forget in (0.0, 1.0):
        params = jax.device_get(
            first_params(
                LSTMLayer(16, Initial(uniform=0.08, forget=forget)).init, jax.random.key(0), x
            )["params"]
        )
        params["of_input"]["bias"] = params["of_input"]["bias"] - np.repeat(
            [0.0, forget, 0.0, 0.0], 16
        )
        for leaf in jax.tree.leaves(params):
            assert 0.06 < np.abs(leaf).max() <= 0.08 + 1e-6


def test_cell_is_the_step_of_the_layer() -> None:
    past, p, start = draw(H, 4 * H), draw(B, 4 * H), first()
    found = LSTMCell(H).apply({"params": {"past": past}}, start, p)
    for row in range(B):
        c, h = reference(
            past, p[row], np.asarray(start.c[row], np.float64), np.asarray(start.h[row], np.float64)
        )
        assert_close(found.c[row], c, eps=8)  # type: ignore[union-attr]
        np.testing.assert_allclose(found.h[row], h, atol=1e-6)  # type: ignore[union-attr]
