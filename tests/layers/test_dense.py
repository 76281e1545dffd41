"""Dense and dropout: formula, gradient, dtype, exact rate, and randomness only where it is asked
for.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.layers.dense import WORTH_TURNING, Dense, Dropout, matmul


@pytest.mark.quick
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 1, 3), (0, 4)])
def test_matmul_is_the_product_over_the_last_axis(lead: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, kernel = (
        rng.normal(size=(*lead, 4)).astype(np.float32),
        rng.normal(size=(4, 5)).astype(np.float32),
    )
    np.testing.assert_allclose(matmul(x, kernel), x @ kernel, atol=1e-6)
    for argument in (0, 1):
        ours = jax.grad(lambda x, w: (matmul(x, w) ** 2).sum(), argnums=argument)(x, kernel)
        np.testing.assert_allclose(
            ours,
            jax.grad(lambda x, w: ((x @ w) ** 2).sum(), argnums=argument)(x, kernel),
            atol=1e-4,
        )


@pytest.mark.quick
def test_a_tall_kernel_is_turned_and_nothing_else_changes() -> None:
    rng = np.random.default_rng(0)
    x, grad = rng.normal(size=(2, WORTH_TURNING // 2, 6)), rng.normal(size=(WORTH_TURNING, 4))
    kernel, change = rng.normal(size=(6, 4)), rng.normal(size=(6, 4))
    flat = x.reshape(-1, 6)
    given = [jnp.asarray(one, jnp.float32) for one in (x, kernel)]
    y, back = jax.vjp(matmul, *given)
    of_x, of_kernel = back(jnp.asarray(grad.reshape(y.shape), jnp.float32))
    _, forward = jax.jvp(
        lambda w: matmul(given[0], w), (given[1],), (jnp.asarray(change, jnp.float32),)
    )
    several = jax.vmap(matmul, in_axes=(None, 0))(given[0], jnp.stack([given[1], -given[1]]))
    for found, wanted in (
        (y, flat @ kernel),
        (of_x, grad @ kernel.T),
        (of_kernel, flat.T @ grad),
        (forward, flat @ change),
        (several[1], -flat @ kernel),
    ):
        np.testing.assert_allclose(found, wanted.reshape(found.shape), rtol=1e-4, atol=1e-4)
    if jax.default_backend() == "cpu":
        assert "optimization_barrier" in str(jax.make_jaxpr(matmul)(*given))


def test_dense_is_affine_in_the_dtype_of_its_arguments() -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    params = Dense(5).init(jax.random.key(0), x)["params"]
    assert (params["bias"] == 0).all() and np.abs(params["kernel"]).max() <= np.sqrt(
        6 / 9
    )  # Glorot uniform
    params = {"kernel": params["kernel"], "bias": jnp.arange(5.0)}
    np.testing.assert_allclose(
        Dense(5).apply({"params": params}, x), x @ params["kernel"] + params["bias"], atol=1e-6
    )
    assert set(Dense(5, use_bias=False).init(jax.random.key(0), x)["params"]) == {"kernel"}
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), (params, x))
    assert Dense(5).apply({"params": low[0]}, low[1]).dtype == jnp.bfloat16


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_dropout_keeps_the_mean_and_has_its_rate(rate: float) -> None:
    """Kept entries are scaled by 1 / (1 - rate); the share of zeros is within five standard
    errors.
    """
    count = 200_000
    found = np.asarray(
        Dropout(rate).apply({}, jnp.ones(count), rngs={"dropout": jax.random.key(0)})
    )
    assert set(np.unique(found)) == {np.float32(0), np.float32(1) / np.float32(1 - rate)}
    assert abs((found == 0).mean() - rate) < 5 * np.sqrt(rate * (1 - rate) / count)


@pytest.mark.quick
def test_dropout_is_off_without_a_stream_or_a_rate() -> None:
    x = jnp.arange(12.0)
    np.testing.assert_array_equal(Dropout(0.5).apply({}, x), x)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, x, rngs={"dropout": jax.random.key(0)}), x)
    one, again, other = (
        Dropout(0.5).apply({}, x, rngs={"dropout": jax.random.key(seed)}) for seed in (0, 0, 1)
    )
    assert (one == again).all() and (one != other).any()


def test_dropped_entries_get_no_gradient_even_where_they_are_not_finite() -> None:
    x = jnp.full(64, jnp.inf).at[::2].set(1.0)
    key = jax.random.key(0)
    kept = np.asarray(Dropout(0.5).apply({}, jnp.ones(64), rngs={"dropout": key})) > 0
    found, pull = jax.vjp(lambda x: Dropout(0.5).apply({}, x, rngs={"dropout": key}), x)
    assert (np.asarray(found)[~kept] == 0.0).all()
    np.testing.assert_array_equal(pull(jnp.ones(64))[0], np.where(kept, 2.0, 0.0))
    assert (
        Dropout(0.5).apply({}, jnp.ones(4, jnp.bfloat16), rngs={"dropout": key}).dtype
        == jnp.bfloat16
    )
