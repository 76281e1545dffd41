"""The norms: formulas in float64, what they start as, precision, bounded slopes."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.errors import UserError
from attnlab.layers import NORMS
from attnlab.layers.norms import DEVICES, STATISTICS, BatchNorm, LayerNorm, Norm, ScaleNorm, told
from attnlab.training.parallel import AXIS
from tests.layers.oracles import norm_of, over_batch
from tests.rounding import assert_close

D = 8
NAMES = NORMS.names()


def drawn(name: str, **fields: Any) -> tuple[Any, Any, np.ndarray]:
    """A norm, parameters N(1, 1/4), an input [2,3,D]."""
    rng = np.random.default_rng(0)
    module, x = NORMS.resolve(name)(**fields), rng.normal(2.0, 1.5, size=(2, 3, D))
    shapes = jax.eval_shape(module.init, jax.random.key(0), *asked(module, x)).get("params", {})
    drawn = jax.tree.map(lambda leaf: rng.normal(1.0, 0.5, size=leaf.shape), shapes)
    return (
        module,
        {one: np.abs(leaf) if one == "variance" else leaf for one, leaf in drawn.items()},
        x,
    )


def asked(module: Any, x: Any) -> tuple[Any, ...]:
    """What a norm is called with, all tokens real."""
    return (x, np.ones(x.shape[:-1], bool)) if module.over_batch else (x,)


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_norm_is_its_formula(name: str) -> None:
    fields = {} if name in ("dynamic_tanh", "none") else {"epsilon": 0.3}
    module, params, x = drawn(name, **fields)
    expected = norm_of(name, params, x, fields.get("epsilon", 0.0))
    single = module.apply({"params": params}, *asked(module, x.astype(np.float32)))
    np.testing.assert_allclose(single, expected, atol=1e-5)
    with jax.enable_x64(True):
        double = module.apply({"params": params}, *asked(module, x))
    assert double.dtype == np.float64
    np.testing.assert_allclose(double, expected, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_norm_starts_as(name: str) -> None:
    """g at 1 (at sqrt(d) where it is one number, at 0 where 1 is added), b at 0."""
    module, _, x = drawn(name)
    params = module.init(jax.random.key(0), *asked(module, jnp.asarray(x))).get("params", {})
    starts = {
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
    assert set(params) == set(starts[name])
    for leaf, start in starts[name].items():
        np.testing.assert_allclose(params[leaf], start, rtol=1e-6)
        assert params[leaf].dtype == jnp.float32


def test_layer_norm_computes_what_flax_does_to_the_last_bit() -> None:
    x = np.random.default_rng(1).normal(size=(4, 5, 32)).astype(np.float32)
    params = {"scale": np.linspace(0.5, 2, 32, dtype=np.float32), "bias": np.ones(32, np.float32)}
    theirs = nn.LayerNorm(epsilon=1e-6, use_fast_variance=False)
    found, expected = (
        jax.jit(lambda x, one=one: one.apply({"params": params}, x))(x)
        for one in (LayerNorm(), theirs)
    )
    np.testing.assert_array_equal(found, expected)


def test_layer_norm_without_parameters_and_rms_norm_of_a_centred_row() -> None:
    x = np.random.default_rng(2).normal(size=(3, D))
    bare = LayerNorm(use_scale=False, use_bias=False)
    assert not bare.init(jax.random.key(0), x)
    centred = x - x.mean(axis=-1, keepdims=True)
    root = NORMS.resolve("rms_norm")(use_scale=False)
    assert not root.init(jax.random.key(0), x)
    assert_close(root.apply({}, centred), bare.apply({}, x), eps=8)


@pytest.mark.quick
@pytest.mark.parametrize("mean", [0.0, 100.0, 1e4])
def test_layer_norm_keeps_its_digits_where_the_mean_is_large(mean: float) -> None:
    """Against float64; E[x^2] - E[x]^2 in float32 would be off by whole units at a mean of 10^4."""
    x = (np.random.default_rng(0).normal(size=(3, D)) + mean).astype(np.float32)
    params = {
        "scale": np.linspace(0.5, 2, D).astype(np.float32),
        "bias": np.linspace(-1, 1, D).astype(np.float32),
    }
    found = LayerNorm().apply({"params": params}, x)
    expected = norm_of("layer_norm", params, x.astype(np.float64), 1e-6)
    np.testing.assert_allclose(found, expected, atol=2e-6 * max(1.0, mean))


@pytest.mark.parametrize("name", NAMES)
def test_low_precision_stays_low_and_is_rounded_once(name: str) -> None:
    module, params, x = drawn(name)
    low = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), params)
    given = jnp.asarray(x, jnp.bfloat16)
    found = module.apply({"params": low}, *asked(module, given))
    assert found.dtype == jnp.bfloat16
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), low)
    exact = module.apply({"params": wide}, *asked(module, given.astype(jnp.float32)))
    np.testing.assert_array_equal(found, exact.astype(jnp.bfloat16))


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_finite_where_a_row_is_zero(name: str) -> None:
    module, params, x = drawn(name)
    slope = jax.grad(lambda x: (module.apply({"params": params}, *asked(module, x)) ** 2).sum())
    assert np.isfinite(np.asarray(slope(np.zeros((2, D), np.float32)))).all()
    assert np.isfinite(np.asarray(slope(x.astype(np.float32)))).all()


def test_short_rows_are_not_stretched_by_scale_norm() -> None:
    module = ScaleNorm(epsilon=1.0)
    params = {"scale": np.float32(3.0)}
    x = np.full((1, 4), 0.25, np.float32)  # of length 1/2
    np.testing.assert_allclose(module.apply({"params": params}, x), 3 * x)


def test_every_norm_is_of_the_base() -> None:
    assert all(issubclass(NORMS.resolve(name), Norm) for name in NAMES)


def in_training(
    params: Any, x: Any, valid: Any, **fields: Any
) -> tuple[np.ndarray, tuple[float, Any]]:
    """What batch norm makes of a batch in training, and what it leaves for the step."""
    y, left = BatchNorm(**fields).apply({"params": params}, x, valid, mutable=[STATISTICS])
    (seen,) = left[STATISTICS]["seen"]
    return np.asarray(y), seen


@pytest.mark.quick
def test_batch_norm_in_training_is_its_formula_and_padding_is_inert() -> None:
    _, params, x = drawn("batch_norm")
    valid = np.array([[True, True, False], [True, False, False]])
    with jax.enable_x64(True):
        y, (kept, seen) = in_training(params, x, valid, epsilon=0.3, momentum=0.75)
        other, (_, same) = in_training(
            params, np.where(valid[..., None], x, 1e6), valid, epsilon=0.3
        )
        longer = np.pad(x, ((0, 1), (0, 2), (0, 0)), constant_values=7.0)
        padded, _ = in_training(params, longer, np.pad(valid, ((0, 1), (0, 2))), epsilon=0.3)
    expected, mean, variance = over_batch(params, x, valid, 0.3)
    np.testing.assert_allclose(y[valid], expected[valid], atol=1e-12)
    np.testing.assert_allclose(other[valid], expected[valid], atol=1e-12)
    np.testing.assert_allclose(padded[:2, :3][valid], expected[valid], atol=1e-12)
    for found in (seen, same):
        np.testing.assert_allclose(found["mean"], mean, atol=1e-12)
        np.testing.assert_allclose(found["variance"], variance, atol=1e-12)
    assert kept == 0.75


def test_batch_norm_of_one_token_or_none_is_finite_and_none_moves_nothing() -> None:
    _, params, x = drawn("batch_norm")
    for tokens, kept in ((1, 0.9), (0, 1.0)):
        valid = np.arange(6).reshape(2, 3) < tokens
        y, (weight, seen) = in_training(params, x.astype(np.float32), valid)
        assert np.isfinite(y).all() and np.isfinite(seen["variance"]).all()
        assert weight == np.float32(kept)


def test_the_slope_of_batch_norm_goes_through_the_statistics() -> None:
    """A batch that is shifted or stretched as a whole is the same batch."""
    _, params, x = drawn("batch_norm", epsilon=0.0)
    valid, weights = np.ones((2, 3), bool), np.random.default_rng(1).normal(size=x.shape)

    def loss(x: Any) -> jax.Array:
        y, _ = BatchNorm(epsilon=1e-12).apply({"params": params}, x, valid, mutable=[STATISTICS])
        total: jax.Array = (y * weights).sum()
        return total

    with jax.enable_x64(True):
        slope = np.asarray(jax.grad(loss)(x))
    np.testing.assert_allclose(slope.sum(axis=(0, 1)), 0.0, atol=1e-9)
    np.testing.assert_allclose((slope * x).sum(axis=(0, 1)), 0.0, atol=1e-8)


def test_what_batch_norm_needs_is_named() -> None:
    module, params, x = drawn("batch_norm")
    with pytest.raises(UserError, match="norm batch_norm at .*which tokens are real.*head=linear"):
        module.apply({"params": params}, x)
    with pytest.raises(UserError, match=r"momentum=1.0: expected at least 0 and below 1"):
        BatchNorm(momentum=1.0).apply({"params": params}, *asked(module, x))
    with pytest.raises(UserError, match="the loss of this task does not keep the statistics"):
        module.apply({"params": params}, *asked(module, x), rngs={"dropout": jax.random.key(0)})
    assert told(Norm(), x, None) is x


def test_the_axis_of_devices_is_that_of_training() -> None:
    assert DEVICES == AXIS
