"""Normalised weights, windows and gates, one step at a time and all at once, against plain
loops.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.convolution import GatedConvolution, NormedDense, nothing_before
from tests.rounding import assert_close

KERNELS = (1, 3, 4)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@functools.cache
def made(kernel: int) -> tuple[GatedConvolution, Any]:
    """A convolution of 4 to 5, and parameters with a bias and a scale of their own."""
    module = GatedConvolution(5, kernel)
    params = module.init(
        jax.random.key(0), drawn(2, 3, 4), nothing_before(2, 4, kernel), method="causal"
    )["params"]
    return module, jax.tree.map(lambda leaf: leaf + 0.3 * drawn(*leaf.shape, seed=1), params)


def looped(params: Any, x: np.ndarray, first: int, kernel: int) -> np.ndarray:
    """y_t = A * sigmoid(B) of b + sum_j x_{t+first+j} W_j in float64; beyond the ends there are
    zeros.
    """
    v, g, b = (np.asarray(params["linear"][name], np.float64) for name in ("v", "g", "bias"))
    weights = (v * g / np.sqrt((v**2).sum(axis=0))).reshape(kernel, x.shape[-1], -1)
    y = np.zeros((*x.shape[:2], len(b) // 2))
    for row, t in np.ndindex(x.shape[:2]):
        total = b.copy()
        for j in range(kernel):
            if 0 <= t + first + j < x.shape[1]:
                total += x[row, t + first + j] @ weights[j]
        y[row, t] = total[: len(b) // 2] / (1 + np.exp(-total[len(b) // 2 :]))
    return y


@pytest.mark.quick
@pytest.mark.parametrize("kernel", KERNELS)
def test_causal_windows_end_where_they_stand(kernel: int) -> None:
    module, params = made(kernel)
    x = drawn(2, 6, 4, seed=2)
    y, last = module.apply({"params": params}, x, nothing_before(2, 4, kernel), method="causal")  # type: ignore[misc]
    assert_close(y, looped(params, x, 1 - kernel, kernel), eps=8)
    assert last.shape == (2, kernel - 1, 4)
    np.testing.assert_array_equal(last, x[:, 7 - kernel :])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("pieces", [(1,) * 6, (2, 1, 3)])
def test_pieces_equal_the_whole(kernel: int, pieces: tuple[int, ...]) -> None:
    module, params = made(kernel)
    call = functools.partial(module.apply, {"params": params}, method="causal")
    x = drawn(2, 6, 4, seed=2)
    whole, _ = call(x, nothing_before(2, 4, kernel))  # type: ignore[misc]
    before, found, first = nothing_before(2, 4, kernel), [], 0
    for piece in pieces:
        y, before = call(x[:, first : first + piece], before)  # type: ignore[misc]
        found.append(y)
        first += piece
    np.testing.assert_allclose(jnp.concatenate(found, axis=1), whole, atol=1e-6)


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_windows_around_a_place_see_no_padding(kernel: int) -> None:
    module, params = made(kernel) if kernel in KERNELS else (GatedConvolution(5, kernel), None)
    x = drawn(3, 4, 4, seed=2)
    valid = np.array([[True] * 4, [True] * 2 + [False] * 2, [False] * 4])
    if params is None:
        params = jax.tree.map(
            lambda leaf: leaf + 0.3,
            module.init(jax.random.key(0), x, valid, method="same")["params"],
        )
    y = module.apply({"params": params}, x, valid, method="same")
    expected = looped(params, np.where(valid[..., None], x, 0), -(kernel // 2), kernel)
    np.testing.assert_allclose(y, expected, atol=2e-6)
    dirty = module.apply(
        {"params": params}, np.where(valid[..., None], x, 1e4), valid, method="same"
    )
    np.testing.assert_array_equal(dirty, y)


@pytest.mark.quick
def test_weights_start_as_drawn_and_their_length_is_a_parameter_of_its_own() -> None:
    module, x = NormedDense(6, keep=0.8, gain=2.0), drawn(3, 50)
    params = module.init(jax.random.key(0), x)["params"]
    np.testing.assert_allclose(
        module.apply({"params": params}, x), x @ params["v"], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(
        module.apply({"params": {**params, "v": 10 * params["v"]}}, x),
        x @ params["v"],
        rtol=1e-4,
        atol=1e-5,
    )
    np.testing.assert_allclose(
        module.apply({"params": {**params, "g": 10 * params["g"]}}, x),
        10 * x @ params["v"],
        rtol=1e-4,
        atol=1e-4,
    )
    assert float(jnp.std(params["v"])) == pytest.approx(2 * (0.8 / 50) ** 0.5, rel=0.15)


def test_a_stack_keeps_the_scale_it_starts_with() -> None:
    """Four residual blocks times sqrt(1/2), as ConvS2S has them; with a gain of 1 the standard
    deviation would fall to a half.
    """
    x = drawn(4, 30, 64)
    valid = np.ones((4, 30), bool)
    for number in range(4):
        module = GatedConvolution(64, 3)
        params = module.init(jax.random.key(number), x, valid, method="same")
        x = np.asarray(0.5**0.5 * (module.apply(params, x, valid, method="same") + x))
    assert 0.9 < x.std() < 2


def test_dropout_is_on_the_inputs_and_needs_its_stream() -> None:
    module, x = GatedConvolution(5, 3, dropout=0.5), drawn(2, 6, 4)
    valid = np.ones((2, 6), bool)
    variables = module.init(jax.random.key(0), x, valid, method="same")
    quiet = module.apply(variables, x, valid, method="same")
    np.testing.assert_array_equal(
        quiet, GatedConvolution(5, 3).apply(variables, x, valid, method="same")
    )
    assert (
        np.abs(
            module.apply(variables, x, valid, method="same", rngs={"dropout": jax.random.key(1)})
            - quiet
        ).max()
        > 1e-2
    )  # type: ignore[operator]
