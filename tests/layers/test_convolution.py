"""Convolutions with normalised weights and gates equal plain loops, one step at a time and all at
once; padding is not read.
"""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.layers.convolution import GatedConvolution, NormedDense, nothing_before
from tests.rounding import assert_close

KERNELS = (1, 3, 4)


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def made(kernel: int) -> tuple[GatedConvolution, Any]:
    """A convolution of 4 to 5, and parameters with a bias and a scale of their own."""
    module, x = GatedConvolution(5, kernel), drawn(2, 3, 4)
    call = functools.partial(module.init, method="causal")
    shapes = jax.eval_shape(call, jax.random.key(0), x, nothing_before(2, 4, kernel))["params"]
    return module, jax.tree.map(lambda leaf: drawn(*leaf.shape, seed=1), shapes)


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
@pytest.mark.parametrize("pieces", [(6,), (1,) * 6, (2, 1, 3)])
def test_causal_windows_end_where_they_stand_in_any_pieces(
    kernel: int, pieces: tuple[int, ...]
) -> None:
    module, params = made(kernel)
    call = jax.jit(functools.partial(module.apply, {"params": params}, method="causal"))
    x = drawn(2, 6, 4, seed=2)
    before, actual, first = nothing_before(2, 4, kernel), [], 0
    for piece in pieces:
        y, before = call(x[:, first : first + piece], before)
        actual.append(y)
        first += piece
    assert_close(np.concatenate(actual, axis=1), looped(params, x, 1 - kernel, kernel), eps=16)
    assert before.shape == (2, kernel - 1, 4)
    np.testing.assert_array_equal(before, x[:, 7 - kernel :])


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_windows_around_a_place_see_no_padding(kernel: int) -> None:
    module, params = made(kernel)
    x = drawn(3, 4, 4, seed=2)
    valid = np.array([[True] * 4, [True] * 2 + [False] * 2, [False] * 4])
    run = jax.jit(lambda x: module.apply({"params": params}, x, valid, method="same"))
    y, real = run(x), np.where(valid[..., None], x, 0)
    assert_close(y, looped(params, real, -(kernel // 2), kernel), eps=16)
    np.testing.assert_array_equal(run(np.where(valid[..., None], x, 1e4)), y)


@pytest.mark.quick
def test_weights_start_as_drawn_and_their_length_is_a_parameter_of_its_own() -> None:
    module, x = NormedDense(6, keep=0.8, gain=2.0), drawn(3, 50)
    params = jax.device_get(jax.jit(module.init)(jax.random.key(0), x)["params"])
    run = jax.jit(lambda params: module.apply({"params": params}, x))
    expected = x @ params["v"]
    for changes, times in (({}, 1), ({"v": 10 * params["v"]}, 1), ({"g": 10 * params["g"]}, 10)):
        assert_close(run({**params, **changes}), times * expected, eps=32)
    assert params["v"].std() == pytest.approx(2 * (0.8 / 50) ** 0.5, rel=0.15)


def test_a_stack_keeps_the_scale_it_starts_with() -> None:
    """Four residual blocks times sqrt(1/2), as ConvS2S has them; with a gain of 1 the standard
    deviation would fall to a half.
    """
    module, valid = GatedConvolution(64, 3), np.ones((4, 30), bool)

    @jax.jit
    def through(key: jax.Array, x: Any) -> Any:
        y, _ = module.init_with_output(key, x, valid, method="same")
        return 0.5**0.5 * (y + x)

    x = drawn(4, 30, 64)
    for number in range(4):
        x = through(jax.random.key(number), x)
    assert 0.9 < np.std(x) < 2


def test_dropout_is_on_the_inputs_and_needs_its_stream() -> None:
    _, params = made(3)
    dropping, x, valid = GatedConvolution(5, 3, dropout=0.5), drawn(2, 6, 4), np.ones((2, 6), bool)

    @jax.jit
    def found(key: jax.Array) -> Any:
        run = lambda module, rngs: module.apply(
            {"params": params}, x, valid, method="same", rngs=rngs
        )
        plain = run(GatedConvolution(5, 3), {})
        return plain, run(dropping, {}), run(dropping, {"dropout": key})

    plain, quiet, noisy = found(jax.random.key(1))
    np.testing.assert_array_equal(quiet, plain)
    assert np.abs(noisy - quiet).max() > 1e-2
