"""Recurrent layers above each other and from both ends are put together as is said: sums past the
layers, states handed over, dropout between them. The GRU of decoders computes the equation of Cho
et al. 2014, appendix A.1.2. What every recurrent layer promises: test_cells.py.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.lstm import LSTMLayer
from attnlab.layers.recurrent import BidirectionalGRU, ContextGRUCell, GRUCell, GRULayer
from attnlab.layers.stacked import BidirectionalLSTM, LSTMStack
from tests.layers.oracles import sigmoid
from tests.layers.test_lstm import VALID, B, E, H, T, draw, numbered
from tests.rounding import assert_close

X = draw(B, T, E)


def drawn(module: Any) -> Any:
    """Parameters of layers, N(0, 1), each its own."""
    return numbered(jax.eval_shape(module.init, jax.random.key(0), X, VALID)["params"])


def alone(params: Any, x: Any, reverse: bool) -> Any:
    return LSTMLayer(H).apply({"params": params}, x, VALID, None, reverse)


def assert_near(actual: Any, expected: Any) -> None:
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), actual, expected)


@pytest.mark.parametrize("reverse", [False, True])
def test_each_layer_reads_the_one_below_and_the_third_adds_it(reverse: bool) -> None:
    module = LSTMStack(H, 3, residual=3)
    params = drawn(module)

    @jax.jit
    def both(params: Any) -> Any:
        below, last = X, []
        for number in range(3):
            y, state = alone(params[f"layer_{number}"], below, reverse)
            below = y + below if number == 2 else y
            last.append(state)
        return module.apply({"params": params}, X, VALID, None, reverse), (below, tuple(last))

    assert_near(*both(params))


def test_step_by_step_is_all_at_once() -> None:
    """From states that are handed over, as decoders do."""
    module = LSTMStack(H, 3, residual=3)
    variables = {"params": drawn(module)}
    call = jax.jit(functools.partial(module.apply, variables), static_argnames="method")
    _, states = call(draw(B, T, E, seed=1), None, None)
    outputs, last = call(X, None, states)
    for t in range(T):
        contribution = call(X[:, t], method="contribute")
        top, states = call(states, contribution, method="advance")
        np.testing.assert_allclose(top, outputs[:, t], atol=1e-6)
    assert_near(states, last)


@pytest.mark.parametrize(("layers", "equal"), [(1, True), (2, False)])
def test_dropout_spares_what_goes_from_step_to_step(layers: int, equal: bool) -> None:
    """Inputs of zero stay zero whatever is dropped, so that one layer puts out the same; a second
    layer's inputs are dropped.
    """
    module = LSTMStack(H, layers, 0.5, 0)
    variables, x = {"params": drawn(module)}, 0 * X
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


@pytest.mark.parametrize(
    ("module", "layer"),
    [(BidirectionalLSTM(H), LSTMLayer(H)), (BidirectionalGRU(H), GRULayer(H))],
    ids=["lstm", "gru"],
)
def test_both_directions_side_by_side(module: Any, layer: Any) -> None:
    """The forward half first, each with its own parameters; the states of an LSTM are those after
    the last real token and after the first.
    """
    params = drawn(module)

    @jax.jit
    def both(params: Any) -> Any:
        forward, backward = (
            layer.apply({"params": params[name]}, X, VALID, reverse=name == "backward")
            for name in ("forward", "backward")
        )
        result = module.apply({"params": params}, X, VALID)
        if isinstance(layer, GRULayer):
            return result, jnp.concatenate([forward, backward], axis=-1)
        outputs, states = zip(forward, backward, strict=True)
        return result, (jnp.concatenate(outputs, axis=-1), states)

    assert_near(*both(params))


def test_recurrent_matrices_of_gru_cells_start_orthogonal() -> None:
    """Each of the blocks side by side, and no two alike."""
    arguments = [np.zeros((1, size), np.float32) for size in (8, 24, 24)]
    for cell, count in ((GRUCell(8), 2), (ContextGRUCell(8), 3)):
        for matrix in jax.jit(cell.init)(jax.random.key(0), *arguments[:count])["params"].values():
            blocks = np.split(np.asarray(matrix), matrix.shape[1] // 8, axis=1)
            for block in blocks:
                np.testing.assert_allclose(block.T @ block, np.eye(8), atol=1e-5)
            assert all(np.abs(blocks[0] - block).max() > 0.1 for block in blocks[1:])


def test_context_cell_is_the_equations() -> None:
    """h' = (1 - z) h + z tanh(p_n + r (h U_n + q_n)): the reset gate shuts the context out of the
    candidate, not out of the gates.
    """
    past, state = draw(H, 3 * H, seed=1), draw(4, H)
    p, q = 2 * draw(4, 3 * H), 2 * draw(4, 3 * H, seed=2)
    actual = jax.jit(ContextGRUCell(H).apply)({"params": {"past": past}}, state, p, q)
    wide, u, p, q = (np.asarray(array, np.float64) for array in (state, past, p, q))
    r, z = (
        sigmoid(p[:, part] + q[:, part] + wide @ u[:, part])
        for part in (slice(0, H), slice(H, 2 * H))
    )
    new = np.tanh(p[:, 2 * H :] + r * (wide @ u[:, 2 * H :] + q[:, 2 * H :]))
    assert_close(actual, (1 - z) * wide + z * new, eps=8)
