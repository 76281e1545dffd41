"""Every norm is its formula in float64 and in low precision, starts as is said, and has finite
slopes; batch norm computes over the real tokens of a batch; a norm and a gate, in either order, are their
formula.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.layers import NORMS, norms
from attnlab.layers.norms import DEVICES, STATISTICS, BatchNorm, LayerNorm, Norm, ScaleNorm
from attnlab.training.parallel import AXIS
from tests.layers.oracles import norm_of, over_batch
from tests.rounding import assert_close

D = 8
NAMES = NORMS.names()
STARTS: dict[str, dict[str, Any]] = {
    "layer_norm": {"scale": np.ones(D), "bias": np.zeros(D)},
    "rms_norm": {"scale": np.ones(D)},
    "rms_norm_plus_one": {"scale": np.zeros(D)},
    "scale_norm": {"scale": np.sqrt(D)},
    "dynamic_tanh": {"slope": 0.5, "scale": np.ones(D), "bias": np.zeros(D)},
    "batch_norm": {
        **{"scale": np.ones(D), "bias": np.zeros(D)},
        **{"mean": np.zeros(D), "variance": np.ones(D)},
    },
    "none": {},
}
"""g at 1 (at sqrt(d) where it is one number, at 0 where 1 is added), b at 0."""


def drawn(name: str) -> tuple[Any, np.ndarray]:
    """Parameters N(1, 1/4), an input [2,3,D]."""
    rng = np.random.default_rng(0)
    params = {leaf: rng.normal(1.0, 0.5, np.shape(start)) for leaf, start in STARTS[name].items()}
    if "variance" in params:
        params["variance"] = np.abs(params["variance"])
    return params, rng.normal(2.0, 1.5, size=(2, 3, D))


def asked(module: Any, x: Any) -> tuple[Any, ...]:
    """What a norm is called with, all tokens real."""
    return (x, np.ones(x.shape[:-1], bool)) if module.over_batch else (x,)


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_norm_is_its_formula_with_finite_slopes(name: str) -> None:
    """In float32 and float64, a low precision rounded once; slopes where a row is zero too."""
    fields = {} if name in ("dynamic_tanh", "none") else {"epsilon": 0.3}
    (params, x), module = drawn(name), NORMS.resolve(name)(**fields)
    expected = norm_of(name, params, x, fields.get("epsilon", 0.0))
    run = jax.jit(lambda params, x: module.apply({"params": params}, *asked(module, x)))
    single = run(*jax.tree.map(np.float32, (params, x)))
    np.testing.assert_allclose(single, expected, atol=1e-5)
    with jax.enable_x64(True):
        double = run(params, x)
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, expected, atol=1e-13)
    low = jax.tree.map(lambda leaf: np.asarray(leaf, jnp.bfloat16), (params, x))
    rounded = run(*low)
    exact = np.asarray(run(*jax.tree.map(lambda leaf: leaf.astype(np.float32), low)))
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_array_equal(rounded, exact.astype(jnp.bfloat16))
    usual = NORMS.resolve(name)()
    total = lambda x: (usual.apply({"params": params}, *asked(usual, x)) ** 2).sum()
    slope = jax.jit(jax.grad(total))
    assert np.isfinite(slope(0 * x)).all() and np.isfinite(slope(x)).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_a_norm_starts_as(name: str) -> None:
    module, x = NORMS.resolve(name)(), np.ones((2, 3, D), np.float32)
    assert isinstance(module, Norm)
    params = jax.jit(module.init)(jax.random.key(0), *asked(module, x)).get("params", {})
    assert set(params) == set(STARTS[name])
    for leaf, start in STARTS[name].items():
        np.testing.assert_allclose(params[leaf], start, rtol=1e-6)
        assert params[leaf].dtype == jnp.float32


def test_layer_norm_computes_what_flax_does_to_the_last_bit() -> None:
    x = np.random.default_rng(1).normal(size=(4, 5, 32)).astype(np.float32)
    params = {"scale": np.linspace(0.5, 2, 32, dtype=np.float32), "bias": np.ones(32, np.float32)}
    flax_norm = nn.LayerNorm(epsilon=1e-6, use_fast_variance=False)
    actual, expected = (
        jax.jit(module.apply)({"params": params}, x) for module in (LayerNorm(), flax_norm)
    )
    np.testing.assert_array_equal(actual, expected)


def test_layer_norm_without_parameters_is_rms_norm_of_a_centred_row() -> None:
    x = np.random.default_rng(2).normal(size=(3, D)).astype(np.float32)
    bare = LayerNorm(use_scale=False, use_bias=False)
    root = NORMS.resolve("rms_norm")(use_scale=False)

    @jax.jit
    def both(x: Any) -> Any:
        return root.apply({}, x - x.mean(axis=-1, keepdims=True)), bare.apply({}, x)

    assert_close(*both(x), eps=8)
    assert not any(jax.eval_shape(norm.init, jax.random.key(0), x) for norm in (bare, root))


@pytest.mark.quick
def test_layer_norm_keeps_its_digits_where_the_mean_is_large() -> None:
    """Against float64; E[x^2] - E[x]^2 in float32 would be off by whole units at a mean of 10^4."""
    params = {"scale": np.linspace(0.5, 2, D), "bias": np.linspace(-1, 1, D)}
    params = jax.tree.map(np.float32, params)
    run = jax.jit(lambda x: LayerNorm().apply({"params": params}, x))
    for mean in (0.0, 100.0, 1e4):
        x = (np.random.default_rng(0).normal(size=(3, D)) + mean).astype(np.float32)
        expected = norm_of("layer_norm", params, x.astype(np.float64), 1e-6)
        np.testing.assert_allclose(run(x), expected, atol=2e-6 * max(1.0, mean))


def test_short_rows_are_not_stretched_by_scale_norm() -> None:
    x = np.full((1, 4), 0.25, np.float32)  # of length 1/2
    actual = ScaleNorm(epsilon=1.0).apply({"params": {"scale": np.float32(3.0)}}, x)
    np.testing.assert_allclose(actual, 3 * x)


def in_training(params: Any, x: Any, valid: Any, **fields: Any) -> tuple[Any, tuple[Any, Any]]:
    """What batch norm makes of a batch in training, and what it leaves for the step."""

    @jax.jit
    def run(x: Any, valid: Any) -> Any:
        return BatchNorm(**fields).apply({"params": params}, x, valid, mutable=[STATISTICS])

    y, left = run(x, valid)
    (seen,) = left[STATISTICS]["seen"]
    return np.asarray(y), seen


@pytest.mark.quick
def test_batch_norm_in_training_is_its_formula_and_padding_is_inert(float64: None) -> None:
    params, x = drawn("batch_norm")
    fields = {"epsilon": 0.3, "momentum": 0.75}
    valid = np.array([[True, True, False], [True, False, False]])
    longer = np.pad(np.where(valid[..., None], x, 1e6), ((0, 1), (0, 2), (0, 0)))
    expected, mean, variance = over_batch(params, x, valid, 0.3)
    for tokens, real in ((x, valid), (longer, np.pad(valid, ((0, 1), (0, 2))))):
        y, (kept, seen) = in_training(params, tokens, real, **fields)
        np.testing.assert_allclose(y[:2, :3][valid], expected[valid], atol=1e-12)
        np.testing.assert_allclose(seen["mean"], mean, atol=1e-12)
        np.testing.assert_allclose(seen["variance"], variance, atol=1e-12)
        assert kept == 0.75


def test_batch_norm_of_one_token_or_none_is_finite_and_none_moves_nothing() -> None:
    params, x = drawn("batch_norm")
    for tokens, kept in ((1, 0.9), (0, 1.0)):
        valid = np.arange(6).reshape(2, 3) < tokens
        y, (weight, seen) = in_training(params, x.astype(np.float32), valid)
        assert np.isfinite(y).all() and np.isfinite(seen["variance"]).all()
        assert weight == np.float32(kept)


def test_the_slope_of_batch_norm_goes_through_the_statistics(float64: None) -> None:
    """A batch that is shifted or stretched as a whole is the same batch."""
    params, x = drawn("batch_norm")
    valid, weights = np.ones((2, 3), bool), np.random.default_rng(1).normal(size=x.shape)

    def loss(x: Any) -> jax.Array:
        y, _ = BatchNorm(epsilon=1e-12).apply({"params": params}, x, valid, mutable=[STATISTICS])
        total: jax.Array = (y * weights).sum()
        return total

    slope = np.asarray(jax.jit(jax.grad(loss))(x))
    np.testing.assert_allclose(slope.sum(axis=(0, 1)), 0.0, atol=1e-9)
    np.testing.assert_allclose((slope * x).sum(axis=(0, 1)), 0.0, atol=1e-8)


def test_what_batch_norm_needs_is_named() -> None:
    (params, x), module = drawn("batch_norm"), BatchNorm()
    with pytest.raises(UserError, match="norm batch_norm at .*which tokens are real.*head=linear"):
        module.apply({"params": params}, x)
    with pytest.raises(UserError, match=r"momentum=1.0: expected at least 0 and below 1"):
        BatchNorm(momentum=1.0).apply({"params": params}, *asked(module, x))
    with pytest.raises(UserError, match="the loss of this task does not keep the statistics"):
        module.apply({"params": params}, *asked(module, x), rngs={"dropout": jax.random.key(0)})
    assert norms.apply_norm(Norm(), x, None) is x


def test_the_axis_of_devices_is_that_of_training() -> None:
    assert DEVICES == AXIS
