"""Every recurrent layer that a config can name computes its equations in float64 over the real
tokens, step by step as at once, keeps low precision low, and starts as `Initial` says.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers import CELLS
from attnlab.layers.initial import Initial
from attnlab.layers.recurrent import Recurrent
from tests.rounding import assert_close
from tests.systems.oracles.parts import layer_step

B, T, E, H = 3, 6, 4, 5
LENGTHS = (6, 3, 0)
VALID = np.arange(T)[None] < np.array(LENGTHS)[:, None]
NAMES = CELLS.names()


@functools.cache
def drawn(name: str) -> tuple[Recurrent, Any, np.ndarray, Any]:
    """A layer, parameters N(0, 1/4), an input [B,T,E] and a first state, in float64."""
    rng, module = np.random.default_rng(0), CELLS.resolve(name)(width=H)
    x = rng.normal(size=(B, T, E))
    shapes = jax.eval_shape(module.init, jax.random.key(0), x, VALID)["params"]
    params = jax.tree.map(lambda leaf: rng.normal(0, 0.5, size=leaf.shape), shapes)
    state = jax.eval_shape(lambda: module.State.zeros(B, H))
    return module, params, x, jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), state)


@pytest.mark.quick
@pytest.mark.product("equations")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_a_layer_is_its_equations_over_the_real_tokens(
    name: str, reverse: bool, float64: None
) -> None:
    """From the state it is given; each row alone, the empty one too. Padding copies the state;
    garbage in it changes nothing and gets exactly no gradient.
    """
    module, params, x, start = drawn(name)

    @jax.jit
    def run(x: Any) -> Any:
        def total(x: Any) -> Any:
            outputs, last = module.apply({"params": params}, x, VALID, start, reverse)  # type: ignore[misc]
            return (outputs**2).sum(), (outputs, last)

        return total(x)[1], *jax.grad(total, has_aux=True)(x)

    actual, slope, beside_slope = run(x)
    outputs, last = actual
    for row, length in enumerate(LENGTHS):
        state = (getattr(start, "c", start.h)[row], start.h[row])
        for t in reversed(range(T)) if reverse else range(T):
            if t < length:
                state = layer_step(params, state, x[row, t])
            np.testing.assert_allclose(outputs[row, t], state[1], atol=1e-12)
        np.testing.assert_array_equal(last.h[row], outputs[row, 0 if reverse else -1])
        np.testing.assert_allclose(getattr(last, "c", last.h)[row], state[0], atol=1e-12)
    dirty, *_ = run(np.where(VALID[..., None], x, 1e6))
    for other in (dirty, beside_slope):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), other, actual)
    assert (slope[~VALID] == 0.0).all() and (np.abs(slope[VALID]).max(axis=-1) > 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_the_layer_and_low_precision_stays_low(name: str) -> None:
    """Without a mask all tokens are real; gradients are low too, whatever the start is made of."""
    module, params, x, start = drawn(name)
    inputs = jax.tree.map(np.float32, (params, x))

    @jax.jit
    def stepped(params: Any, x: Any) -> Any:
        step = lambda state, x: (module.apply({"params": params}, state, x, method="step"),) * 2
        return jax.lax.scan(step, jax.tree.map(np.float32, start), x.swapaxes(0, 1))[1].h

    @jax.jit
    def run(params: Any, x: Any) -> Any:
        def total(params: Any) -> Any:
            outputs, last = module.apply({"params": params}, x, None, start)  # type: ignore[misc]
            return outputs.astype(jnp.float32).sum(), (outputs, last)

        return jax.grad(total, has_aux=True)(params)

    slope, (outputs, _) = run(*inputs)
    assert_close(stepped(*inputs).swapaxes(0, 1), outputs, eps=8)
    low_slope, low = run(*jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), inputs))
    assert {leaf.dtype for leaf in jax.tree.leaves((low_slope, low))} == {jnp.dtype(jnp.bfloat16)}
    np.testing.assert_allclose(np.asarray(low[0], np.float32), outputs, atol=4e-2)
    for actual, expected in zip(jax.tree.leaves(low_slope), jax.tree.leaves(slope), strict=True):
        off = np.abs(np.asarray(actual, np.float32) - expected).max()
        assert off < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["lstm", "gru", pytest.param("tanh", marks=pytest.mark.full)])
def test_weights_start_as_they_should(name: str) -> None:
    """Recurrent blocks orthogonal and different, each block of W Glorot uniform, biases at 0 but
    for open forget gates; with a bound all within it, the gates opened where that is said.
    """
    layer, closed = CELLS.resolve(name), Initial(uniform=0.08, forget=0.0)
    gates, forget = layer.gates, np.repeat(np.arange(layer.gates) == 1, 16) * (name == "lstm")

    @jax.jit
    def started(key: Any) -> Any:
        initials = [Initial(), closed, *[Initial(uniform=0.08)] * (name == "lstm")]
        x = jnp.zeros((1, 1, 8))
        return [layer(width=16, initial=initial).init(key, x)["params"] for initial in initials]

    usual, *bounded = jax.device_get(started(jax.random.key(0)))
    blocks = [
        block
        for matrix in usual["cell"].values()
        for block in np.split(matrix, matrix.shape[1] // 16, axis=1)
    ]
    assert len(blocks) == gates and all(np.abs(blocks[0] - b).max() > 0.1 for b in blocks[1:])
    for block in blocks:
        np.testing.assert_allclose(block.T @ block, np.eye(16), atol=1e-5)
    (kernel,) = jax.tree.leaves(usual["of_input"]["kernel"])
    bound = np.sqrt(6 / (8 + 16))
    assert 0.9 * bound < np.abs(kernel).max() <= bound
    np.testing.assert_array_equal(usual["of_input"]["bias"], forget)
    for opened, params in enumerate(bounded):
        params["of_input"]["bias"] = params["of_input"]["bias"] - opened * forget
        start = params if name == "lstm" else params["of_input"]  # others have orthogonal cells
        for leaf in jax.tree.leaves(start):
            assert 0.06 < np.abs(leaf).max() <= 0.08 + 1e-6
