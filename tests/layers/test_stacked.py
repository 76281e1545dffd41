"""Layers above each other and from both ends: what `test_lstm` says of one holds, and this is how
they are put together.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.layers.lstm import LSTMLayer
from attnlab.layers.stacked import BidirectionalLSTM, LSTMStack
from attnlab.training.drawing import first_params
from tests.layers.test_lstm import VALID, B, E, H, T, draw


@functools.cache
def stack(layers: int = 3, residual: int = 3, dropout: float = 0.0) -> tuple[LSTMStack, Any]:
    module = LSTMStack(H, layers, dropout, residual)
    shapes = jax.eval_shape(module.init, jax.random.key(0), np.zeros((1, 2, E), np.float32))[
        "params"
    ]
    return module, jax.tree.map(lambda leaf: draw(*leaf.shape, seed=3), shapes)


def alone(params: Any, x: Any, **how: Any) -> Any:
    return jax.jit(lambda x: LSTMLayer(H).apply({"params": params}, x, VALID, **how))(x)


@pytest.mark.parametrize("reverse", [False, True])
def test_each_layer_reads_the_one_below_and_the_third_adds_it(reverse: bool) -> None:
    module, params = stack()
    x = draw(B, T, E)
    outputs, states = jax.jit(lambda x: module.apply({"params": params}, x, VALID, None, reverse))(
        x
    )
    below: Any = x
    for number in range(3):
        y, last = alone(params[f"layer_{number}"], below, reverse=reverse)
        below = y + below if number == 2 else y
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6),
            states[number],
            last,
        )
    np.testing.assert_allclose(outputs, below, atol=1e-6)


def test_step_by_step_is_all_at_once() -> None:
    """From states that are handed over, as decoders do."""
    module, params = stack()
    x = draw(B, T, E)
    call = jax.jit(functools.partial(module.apply, {"params": params}), static_argnames="method")
    _, states = call(draw(B, T, E, seed=1))
    outputs, last = call(x, None, states)
    for t in range(T):
        contribution = call(x[:, t], method="contribute")
        top, states = call(states, contribution, method="advance")
        np.testing.assert_allclose(top, outputs[:, t], atol=1e-6)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6), states, last)


def test_dropout_spares_what_goes_from_step_to_step() -> None:
    """Inputs of zero stay zero whatever is dropped, so that one layer puts out the same; a second
    layer's inputs are dropped.
    """
    for layers, same in ((1, True), (2, False)):
        module, params = stack(layers, 0, 0.5)
        call = jax.jit(
            lambda rngs, module=module, params=params: module.apply(
                {"params": params}, np.zeros((B, T, E), np.float32), rngs=rngs
            )
        )
        quiet, noisy = call({})[0], call({"dropout": jax.random.key(0)})[0]
        assert (np.abs(quiet - noisy).max() == 0.0) == same


def test_without_layers_it_is_the_identity() -> None:
    x = draw(B, T, E)
    outputs, states = LSTMStack(H, 0).apply({"params": {}}, x)  # type: ignore[misc]
    np.testing.assert_array_equal(outputs, x)
    assert states == ()


def test_the_lowest_layer_adds_nothing() -> None:
    with pytest.raises(ValueError, match="starts at 2"):
        LSTMStack(H, 2, residual=1).init(jax.random.key(0), draw(B, T, E))


def test_both_directions_side_by_side() -> None:
    """The forward half first; the states are those after the last real token and after the
    first.
    """
    module = BidirectionalLSTM(H)
    x = draw(B, T, E)
    params = first_params(module.init, jax.random.key(0), x)["params"]
    outputs, (at_end, at_beginning) = jax.jit(lambda x: module.apply({"params": params}, x, VALID))(
        x
    )
    forward, backward = (
        alone(params[name], x, reverse=name == "backward") for name in ("forward", "backward")
    )
    np.testing.assert_allclose(
        outputs, np.concatenate([forward[0], backward[0]], axis=-1), atol=1e-6
    )
    for found, (_, expected) in ((at_end, forward), (at_beginning, backward)):
        jax.tree.map(
            lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6), found, expected
        )
    assert (
        np.abs(params["forward"]["cell"]["past"] - params["backward"]["cell"]["past"]).max() > 0.1
    )


def test_sums_past_the_layers_carry_the_gradient_down() -> None:
    """Five layers that start small: the lowest one's gradient is a hundred times larger and more
    with sums from the third layer on.
    """
    sizes, x, rng = [], draw(2, 2, 8), np.random.default_rng(0)
    shapes = jax.eval_shape(LSTMStack(8, 5).init, jax.random.key(0), x)["params"]
    params = jax.tree.map(
        lambda leaf: rng.uniform(-0.04, 0.04, leaf.shape).astype(np.float32), shapes
    )
    for residual in (3, 0):
        module = LSTMStack(8, 5, residual=residual)
        slope = jax.jit(
            jax.grad(
                lambda params, module=module: (
                    module.apply({"params": params}, x)[0] * draw(2, 2, 8, seed=1)
                ).sum()
            )
        )
        sizes.append(
            float(np.linalg.norm(slope(params)["layer_0"]["of_input"]["kernel"]["kernel"]))
        )
    assert sizes[0] > 100 * sizes[1] > 0
