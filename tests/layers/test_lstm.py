"""The LSTM's own backward loop has the gradients of autodiff, adds up no gradient of a matrix from
step to step, and works under vmap and pmap. What every recurrent layer promises: test_cells.py.
"""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attnlab.gathering import whole
from attnlab.layers.lstm import LSTMLayer, LSTMState, gated, recurrence

H, E, B, T = 4, 3, 3, 6
LENGTHS = (6, 3, 0)
VALID = np.arange(T)[None] < np.array(LENGTHS)[:, None]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def numbered(shapes: Any, size: float = 1.0) -> Any:
    """Parameters of these shapes, N(0, size^2), each leaf from a seed of its own."""
    leaves, tree = jax.tree.flatten(shapes)
    return jax.tree.unflatten(
        tree, [size * draw(*leaf.shape, seed=number) for number, leaf in enumerate(leaves)]
    )


@functools.cache
def given() -> tuple[np.ndarray, np.ndarray, LSTMState]:
    """U, the contributions [T,B,4H] and a first state."""
    state = LSTMState(draw(B, H, seed=5), draw(B, H, seed=6))  # type: ignore[arg-type]
    return draw(H, 4 * H), draw(T, B, 4 * H), state


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


@pytest.mark.quick
@pytest.mark.parametrize("reverse", [False, True])
def test_gradient_is_that_of_the_plain_loop(reverse: bool, float64: None) -> None:
    """In float64; padding has none, and the empty row hands its slope on as it is."""
    wide = jax.tree.map(np.float64, given())
    actual, expected = (
        jax.jit(jax.grad(weighed(function, reverse), argnums=(0, 1, 2)))(*wide)
        for function in (recurrence, plain)
    )
    for ours, theirs in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)
    of_contribution = np.abs(np.asarray(actual[1]))
    assert (of_contribution[~VALID.T] == 0.0).all() and (of_contribution[VALID.T] > 0).all()
    np.testing.assert_array_equal(actual[2].c[2], draw(B, H, seed=8)[2])


def carries(jaxpr: Any) -> list[tuple[int, ...]]:
    """The shapes that loops carry from step to step, at any depth, and those of what they put out
    at every step, which begin with T.
    """
    shapes = []
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            inner = getattr(value, "jaxpr", None)
            if inner is not None:
                shapes += carries(inner)
        if eqn.primitive.name == "scan":
            shapes += [var.aval.shape for var in eqn.outvars]
    return shapes


def test_no_loop_adds_up_the_gradient_of_the_matrix() -> None:
    """Autodiff of the plain loop carries [H,4H] from step to step; ours carries states only."""
    for function, adds in ((recurrence, False), (plain, True)):
        shapes = carries(jax.make_jaxpr(jax.grad(weighed(function, False)))(*given()).jaxpr)
        assert (B, H) in shapes and ((H, 4 * H) in shapes) == adds


def test_gradients_of_several_models_and_on_several_devices() -> None:
    """Under vmap over parameters and pmap over rows."""
    x = draw(4, T, E)
    valid = np.arange(T)[None] < np.array([6, 4, 1, 0])[:, None]
    shapes = jax.eval_shape(LSTMLayer(H).init, jax.random.key(0), x)["params"]
    several = jax.tree.map(
        lambda leaf: np.stack([k * draw(*leaf.shape, seed=3) for k in (0.5, 1.0)]), shapes
    )
    models = [jax.tree.map(lambda leaf, k=k: leaf[k], several) for k in range(2)]

    def slope(params: Any, x: Any, valid: Any) -> Any:
        def loss(params: Any) -> Any:
            return (LSTMLayer(H).apply({"params": params}, x, valid)[0] ** 2).sum()

        return jax.grad(loss)(params)

    def assert_near(actual: Any, expected: Any) -> None:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), actual, expected)

    alone = [jax.jit(slope)(model, x, valid) for model in models]
    together = jax.jit(jax.vmap(slope, in_axes=(0, None, None)))(several, x, valid)
    assert_near(together, jax.tree.map(lambda *leaves: np.stack(leaves), *alone))
    devices = min(4, jax.local_device_count())
    rows = (array.reshape(devices, 4 // devices, *array.shape[1:]) for array in (x, valid))
    spread = jax.pmap(
        lambda params, *rows: jax.lax.psum(slope(params, *rows), "rows"),
        axis_name="rows",
        in_axes=(None, 0, 0),
    )
    assert_near(jax.tree.map(lambda leaf: leaf[0], spread(models[1], *rows)), alone[1])


def test_rows_that_lie_on_several_devices_stay_there() -> None:
    """Of a step on divided parameters: they alone are gathered, and the gradients are the same."""
    mesh = Mesh(np.array(jax.local_devices()[:2]), ("fsdp",))
    everywhere, rows = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("fsdp",)))
    x = draw(4, T, E)
    params = LSTMLayer(H).init(jax.random.key(0), x)["params"]
    lie = jax.tree.map(lambda leaf: rows if len(leaf) == H else everywhere, params)

    def slope(params: Any, x: Any) -> Any:
        return (LSTMLayer(H).apply({"params": params}, x)[0] ** 2).sum()  # type: ignore[index]

    def divided(params: Any, x: Any) -> Any:
        with whole(params, lie, everywhere) as gathered:
            return slope(gathered, x)

    program = jax.jit(jax.grad(divided), in_shardings=(lie, rows)).lower(params, x).compile()
    gathers = re.findall(r"= \S*\[([\d,]*)\]\S* all-gather", program.as_text())
    assert gathers == [f"{H},{4 * H}"]
    actual = program(jax.device_put(params, lie), jax.device_put(x, rows))
    close = lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5)
    jax.tree.map(close, actual, jax.jit(jax.grad(slope))(params, x))
