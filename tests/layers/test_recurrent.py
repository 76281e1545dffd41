"""Every recurrent layer that a config can name computes its equations in float64 over the real tokens,
step by step as at once, keeps low precision low, and starts as `Initial` says. The LSTM's own backward
loop has the gradients of autodiff, adds up no gradient of a matrix from step to step, and works under vmap
and pmap. Then what layers above each other drop, refuse and start from, and what may be padding.

That layers are put together as is said, from both ends too, with sums past the layers and states handed
over, and texts read side by side, is seen by the oracles of systems.
"""

import functools
import itertools
import re
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from attnlab.errors import UserError
from attnlab.gathering import whole
from attnlab.layers import CELLS
from attnlab.layers.initial import Initial
from attnlab.layers.lstm import LSTMLayer, LSTMState, gated, recurrence
from attnlab.layers.readers import LSTMStack, SentenceReader
from attnlab.layers.recurrent import ContextGRUCell, GRUCell, Recurrent
from tests.rounding import assert_close
from tests.systems.oracles.parts import layer_step

H, E, B, T = 4, 5, 3, 6
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


def orthogonal_blocks(matrices: Iterable[Any], width: int) -> int:
    """How many blocks of this width stand side by side in matrices; all must be orthogonal, and the
    first unlike the others.
    """
    sides = (np.split(np.asarray(one), one.shape[1] // width, axis=1) for one in matrices)
    first, *others = itertools.chain(*sides)
    for block in (first, *others):
        np.testing.assert_allclose(block.T @ block, np.eye(width), atol=1e-5)
    assert all(np.abs(first - block).max() > 0.1 for block in others)
    return 1 + len(others)


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
    assert orthogonal_blocks(usual["cell"].values(), 16) == gates
    (kernel,) = jax.tree.leaves(usual["of_input"]["kernel"])
    bound = np.sqrt(6 / (8 + 16))
    assert 0.9 * bound < np.abs(kernel).max() <= bound
    np.testing.assert_array_equal(usual["of_input"]["bias"], forget)
    for opened, params in enumerate(bounded):
        params["of_input"]["bias"] = params["of_input"]["bias"] - opened * forget
        start = params if name == "lstm" else params["of_input"]  # others have orthogonal cells
        for leaf in jax.tree.leaves(start):
            assert 0.06 < np.abs(leaf).max() <= 0.08 + 1e-6


X = draw(B, T, E)


@pytest.mark.parametrize(("layers", "equal"), [(1, True), (2, False)])
def test_dropout_spares_what_goes_from_step_to_step(layers: int, equal: bool) -> None:
    """Inputs of zero stay zero whatever is dropped, so that one layer puts out the same; a second
    layer's inputs are dropped.
    """
    module = LSTMStack(H, layers, 0.5, 0)
    variables, x = numbered(jax.eval_shape(module.init, jax.random.key(0), X)), 0 * X
    quiet, noisy = jax.jit(
        lambda key: [module.apply(variables, x, rngs=rngs)[0] for rngs in ({}, {"dropout": key})]
    )(jax.random.key(0))
    assert (np.abs(quiet - noisy).max() == 0.0) == equal


def test_without_layers_it_is_the_identity_and_the_lowest_layer_adds_nothing() -> None:
    outputs, states = LSTMStack(H, 0).apply({"params": {}}, X)  # type: ignore[misc]
    np.testing.assert_array_equal(outputs, X)
    assert states == ()
    with pytest.raises(ValueError, match="starts at 2"):
        LSTMStack(H, 2, residual=1).init(jax.random.key(0), X)
    with pytest.raises(UserError, match=r"system.width=5: .*take 4 or 6"):
        LSTMStack(5, 1, directions=2).init(jax.random.key(0), X)


def test_a_step_adds_past_the_layers_as_all_steps_at_once_do() -> None:
    module = LSTMStack(H, 3, residual=3)
    variables = numbered(jax.eval_shape(module.init, jax.random.key(0), X))
    begun = module.apply(variables, X)[1]
    expected = module.apply(variables, X[:, :1], None, begun)[0]
    contribution = module.apply(variables, X[:, 0], method="contribute")
    top, _ = module.apply(variables, begun, contribution, method="advance")
    np.testing.assert_allclose(top, expected[:, 0], atol=1e-6)


def test_recurrent_matrices_of_gru_cells_start_orthogonal() -> None:
    """Each of the blocks side by side, and no two alike."""
    arguments = [np.zeros((1, size), np.float32) for size in (8, 24, 24)]
    for cell, count in ((GRUCell(8), 2), (ContextGRUCell(8), 3)):
        params = jax.jit(cell.init)(jax.random.key(0), *arguments[:count])["params"]
        assert orthogonal_blocks(params.values(), 8) == 3


def test_another_id_may_be_padding() -> None:
    ids = np.array([[5, 6, 7, 8, 8], [0, 8, 8, 8, 8], [8, 8, 8, 8, 8]], np.int32)
    module = SentenceReader(9, 4, 3, padding=8)
    (read,), _ = jax.jit(module.init_with_output)(jax.random.key(0), [ids])
    assert read.valid.tolist() == (ids != 8).tolist()
