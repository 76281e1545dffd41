"""Dense and dropout have their formulas, gradients and dtypes, dropout its exact rate, and randomness
only where it is asked for. Heads are cut from neighbouring channels, and put together in the same order.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.dense import WORTH_TURNING, Dense, Dropout, joined, matmul, split


@pytest.mark.quick
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3), (0, 4)])
def test_matmul_is_the_product_over_the_last_axis(lead: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, kernel, direction = (
        rng.normal(size=size).astype(np.float32) for size in ((*lead, 4), (4, 5), (*lead, 5))
    )

    @jax.jit
    def both(x: Any, kernel: Any) -> Any:
        y, pull = jax.vjp(matmul, x, kernel)
        return y, *pull(direction)

    flat = direction.reshape(-1, 5)
    expected = (x @ kernel, direction @ kernel.T, x.reshape(-1, 4).T @ flat)
    for actual, oracle in zip(both(x, kernel), expected, strict=True):
        np.testing.assert_allclose(actual, oracle, atol=1e-5)


@pytest.mark.quick
def test_a_tall_kernel_is_turned_and_nothing_else_changes() -> None:
    rng = np.random.default_rng(0)
    x, grad = rng.normal(size=(2, WORTH_TURNING // 2, 6)), rng.normal(size=(WORTH_TURNING, 4))
    kernel, change = rng.normal(size=(6, 4)), rng.normal(size=(6, 4))
    x, grad, kernel, change = (array.astype(np.float32) for array in (x, grad, kernel, change))
    flat = x.reshape(-1, 6)

    @jax.jit
    def several(x: Any, kernel: Any) -> Any:
        y, pull = jax.vjp(matmul, x, kernel)
        of_x, of_kernel = pull(grad.reshape(y.shape))
        forward = jax.jvp(lambda w: matmul(x, w), (kernel,), (change,))[1]
        negated = jax.vmap(matmul, in_axes=(None, 0))(x, jnp.stack([kernel, -kernel]))[1]
        return y, of_x, of_kernel, forward, negated

    y = flat @ kernel
    expected = (y, grad @ kernel.T, flat.T @ grad, flat @ change, -y)
    for actual, oracle in zip(several(x, kernel), expected, strict=True):
        np.testing.assert_allclose(actual, oracle.reshape(actual.shape), rtol=1e-4, atol=1e-4)
    traced = jax.jit(matmul).trace(x, kernel)
    texts = [traced.lower(lowering_platforms=(name,)).as_text() for name in ("cpu", "cuda", "tpu")]
    assert ["optimization_barrier" in text for text in texts] == [True, False, False]


def test_dense_is_affine_in_the_dtype_of_its_arguments() -> None:
    """Its kernel starts Glorot uniform, its bias, where it has one, at 0."""
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    run = jax.jit(lambda params, x: Dense(5).apply({"params": params}, x))
    params = jax.device_get(jax.jit(Dense(5).init)(jax.random.key(0), x)["params"])
    assert (params["bias"] == 0).all() and np.abs(params["kernel"]).max() <= np.sqrt(6 / 9)
    params["bias"] = np.arange(5, dtype=np.float32)
    np.testing.assert_allclose(run(params, x), x @ params["kernel"] + params["bias"], atol=1e-6)
    bare = jax.eval_shape(Dense(5, use_bias=False).init, jax.random.key(0), x)["params"]
    assert set(bare) == {"kernel"}
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), (params, x))
    assert jax.eval_shape(run, *low).dtype == jnp.bfloat16


def dropped(rate: float, x: Any, seed: int = 0) -> Any:
    return Dropout(rate).apply({}, x, rngs={"dropout": jax.random.key(seed)})


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_has_its_rate(rate: float) -> None:
    """Kept entries are scaled by 1 / (1 - rate); the share of zeros is within five standard
    errors.
    """
    count = 200_000
    actual = np.asarray(jax.jit(lambda x: dropped(rate, x))(np.ones(count, np.float32)))
    assert set(np.unique(actual)) == {np.float32(0), np.float32(1) / np.float32(1 - rate)}
    assert abs((actual == 0).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / count)


@pytest.mark.quick
def test_dropout_is_off_without_a_stream_or_a_rate() -> None:
    x = np.arange(12, dtype=np.float32)
    np.testing.assert_array_equal(Dropout(0.5).apply({}, x), x)
    np.testing.assert_array_equal(dropped(0.0, x), x)
    first, same, other = jax.jit(lambda x: [dropped(0.5, x, seed) for seed in (0, 0, 1)])(x)
    assert (first == same).all() and (first != other).any()


def test_dropped_entries_get_no_gradient_even_where_they_are_not_finite() -> None:
    """Operation by operation: compiled, XLA turns a product with zeros and ones into a choice."""
    x = jnp.asarray(np.where(np.arange(64) % 2, np.inf, 1.0), jnp.float32)
    actual, pull = jax.vjp(lambda x: dropped(0.5, x), x)
    keeps = np.asarray(dropped(0.5, jnp.ones(64))) > 0
    assert (np.asarray(actual)[~keeps] == 0.0).all()
    np.testing.assert_array_equal(pull(jnp.ones(64))[0], np.where(keeps, 2.0, 0.0))
    low = jax.ShapeDtypeStruct((4,), jnp.bfloat16)
    assert jax.eval_shape(lambda x: dropped(0.5, x), low).dtype == jnp.bfloat16


def test_heads_are_neighbouring_channels() -> None:
    x = np.arange(2 * 3 * 8).reshape(2, 3, 8)
    heads = split(x, 2)
    np.testing.assert_array_equal(heads[1, 1, 2], x[1, 2, 4:])
    np.testing.assert_array_equal(joined(heads), x)
