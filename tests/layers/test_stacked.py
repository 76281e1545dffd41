"""LSTM layers above each other and from both ends are put together as is said: sums past the
layers, states handed over, dropout between them.
"""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.layers.lstm import LSTMLayer
from attnlab.layers.stacked import BidirectionalLSTM, LSTMStack
from tests.layers.test_lstm import VALID, B, E, H, T, draw

X = draw(B, T, E)


def drawn(module: Any) -> Any:
    """Parameters of stacked layers, N(0, 1), each its own."""
    leaves, tree = jax.tree.flatten(jax.eval_shape(module.init, jax.random.key(0), X)["params"])
    return jax.tree.unflatten(
        tree, [draw(*leaf.shape, seed=number) for number, leaf in enumerate(leaves)]
    )


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


def test_both_directions_side_by_side() -> None:
    """The forward half first; the states are those after the last real token and after the
    first.
    """
    module = BidirectionalLSTM(H)
    params = drawn(module)

    @jax.jit
    def both(params: Any) -> Any:
        forward, at_end = alone(params["forward"], X, False)
        backward, at_beginning = alone(params["backward"], X, True)
        halves = jax.numpy.concatenate([forward, backward], axis=-1)
        return module.apply({"params": params}, X, VALID), (halves, (at_end, at_beginning))

    assert_near(*both(params))
