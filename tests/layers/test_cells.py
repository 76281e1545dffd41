"""Recurrent layers that a config can name: equations in float64, padding, both directions, starts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers import CELLS
from attnlab.layers.cells import HiddenState, Recurrent
from attnlab.layers.initial import Initial
from attnlab.layers.stacked import LSTMStack
from attnlab.training.drawing import first_params
from tests.systems.oracles.parts import inputs, lstm, lstm_start

B, T, E, H = 3, 6, 4, 5
LENGTHS = (6, 3, 0)
VALID = np.arange(T)[None] < np.array(LENGTHS)[:, None]
NAMES = CELLS.names()


def drawn(name: str, **fields: Any) -> tuple[Recurrent, Any, np.ndarray]:
    """A layer, parameters N(0, 1/4), an input [B,T,E]."""
    rng, module = np.random.default_rng(0), CELLS.resolve(name)(width=H, **fields)
    x = rng.normal(size=(B, T, E))
    shapes = jax.eval_shape(module.init, jax.random.key(0), x, VALID)["params"]
    return module, jax.tree.map(lambda leaf: rng.normal(0, 0.5, size=leaf.shape), shapes), x


@pytest.mark.quick
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_layer_is_its_equations_over_the_real_tokens(name: str, reverse: bool) -> None:
    module, params, x = drawn(name)
    with jax.enable_x64(True):
        outputs, last = module.apply({"params": params}, x, VALID, None, reverse)  # type: ignore[misc]
    for row, length in enumerate(LENGTHS):
        state = lstm_start(params)
        steps = range(length)
        for t in reversed(steps) if reverse else steps:
            given = inputs(params, x[row, t])
            state = lstm(params, state, given)
            np.testing.assert_allclose(outputs[row, t], state[1], atol=1e-12)
        np.testing.assert_allclose(last.h[row], state[1], atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_the_layer_and_a_first_state_goes_on(name: str) -> None:
    module, params, x = drawn(name)
    whole, end = module.apply({"params": params}, x)  # type: ignore[misc]
    half, state = module.apply({"params": params}, x[:, :2])  # type: ignore[misc]
    rest, last = module.apply({"params": params}, x[:, 2:], None, state)  # type: ignore[misc]
    np.testing.assert_allclose(np.concatenate([half, rest], axis=1), whole, atol=1e-6)
    state = module.State.zeros(B, H)
    for t in range(T):
        state = module.apply({"params": params}, state, x[:, t], method="step")
        np.testing.assert_allclose(state.h, whole[:, t], atol=1e-6)
    for one, other in zip(jax.tree.leaves(last), jax.tree.leaves(end), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_padding_reaches_nothing(name: str) -> None:
    module, params, x = drawn(name)
    run = jax.jit(lambda x: module.apply({"params": params}, x, VALID)[0])
    garbage = np.where(VALID[..., None], x, 1e6)
    np.testing.assert_array_equal(run(garbage), run(x))
    slope = np.asarray(jax.grad(lambda x: (run(x) ** 2).sum())(x))
    assert (slope[~VALID] == 0.0).all() and (np.abs(slope[VALID]).max(axis=-1) > 0).all()


@pytest.mark.parametrize("name", ["gru", "tanh"])
def test_weights_start_as_they_should(name: str) -> None:
    """Recurrent blocks orthogonal, each block of W Glorot uniform, biases at 0; all of them within
    the bound where there is one.
    """
    module = CELLS.resolve(name)(width=16)
    params = first_params(module.init, jax.random.key(0), jnp.zeros((1, 1, 8)))["params"]
    blocks = [
        block
        for matrix in params["cell"].values()
        for block in np.split(np.asarray(matrix), matrix.shape[1] // 16, axis=1)
    ]
    assert len(blocks) == module.gates
    for block in blocks:
        np.testing.assert_allclose(block.T @ block, np.eye(16), atol=1e-5)
    kernel = np.asarray(params["of_input"]["kernel"])
    bound = np.sqrt(6 / (8 + 16))
    assert (
        0.9 * bound < np.abs(kernel).max() <= bound
        and not np.asarray(params["of_input"]["bias"]).any()
    )
    small = CELLS.resolve(name)(width=16, initial=Initial(uniform=0.1))
    params = first_params(small.init, jax.random.key(0), jnp.zeros((1, 1, 8)))["params"]
    assert 0.05 < np.abs(np.asarray(params["of_input"]["bias"])).max() <= 0.1


def test_a_stack_of_two_directions_shares_its_width() -> None:
    """Each half from its end; the last state is that of both, side by side."""
    stack = LSTMStack(6, 2, kind=CELLS.resolve("gru"), directions=2)
    x = np.random.default_rng(0).normal(size=(B, T, E)).astype(np.float32)
    params = stack.init(jax.random.key(0), x, VALID)["params"]
    outputs, states = stack.apply({"params": params}, x, VALID)  # type: ignore[misc]
    assert outputs.shape == (B, T, 6) and isinstance(states[1], HiddenState)
    np.testing.assert_array_equal(states[1].h[0, :3], outputs[0, T - 1, :3])
    np.testing.assert_array_equal(states[1].h[0, 3:], outputs[0, 0, 3:])
    with pytest.raises(Exception, match=r"system.width=5: .*take 4 or 6"):
        LSTMStack(5, 1, directions=2).init(jax.random.key(0), x)
