"""Dense and dropout have their formulas, gradients and dtypes, dropout its exact rate, and randomness
only where it is asked for. Heads are cut from neighbouring channels, and put together in the same order.
The inner computation is in float64 where float64 comes in, in float32 for everything else, with
`jax_enable_x64` as without.

That float64 is right to its last digits is tested where the oracles are: for mechanisms, and so for
all their parts, in `attention/test_conformance.py`.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.alignments.protocol import SAMPLES
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL
from attnlab.errors import UserError
from attnlab.layers.dense import (
    WORTH_TURNING,
    Dense,
    Dropout,
    inner_dtype,
    joined,
    matmul,
    split,
    widened,
)
from tests.attention import cases
from tests.sampling import full_mode


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


every = cases.over_all() if full_mode() else cases.over(cases.first_settings())


def floats(tree: Any) -> set[Any]:
    """The dtypes of floating-point arrays in a tree."""
    return {
        jnp.dtype(a.dtype) for a in jax.tree.leaves(tree) if jnp.issubdtype(a.dtype, jnp.floating)
    }


@pytest.mark.quick
def test_the_inner_precision_is_at_least_float32_and_what_comes_in(float64: None) -> None:
    for dtype in (np.float16, jnp.bfloat16, np.float32, np.int64, bool):
        # by its shape alone: without F16C, XLA has no program that reads float16
        low = jax.ShapeDtypeStruct((2,), dtype)
        assert inner_dtype(low, 1.0, np.zeros(2, np.float32)) == jnp.float32
        assert jax.eval_shape(widened, low).dtype == jnp.float32
    assert inner_dtype(jnp.zeros(2, jnp.bfloat16), np.zeros(2)) == np.float64
    assert inner_dtype(jax.ShapeDtypeStruct((2,), np.float64)) == np.float64
    with jax.enable_x64(False):
        assert inner_dtype(np.zeros(2)) == jnp.float32 == widened(np.zeros(2)).dtype


@every
def test_float32_stays_float32_where_float64_is_possible(
    name: str, config: dict[str, Any], float64: None
) -> None:
    module = cases.make(name, config)
    query, source, valid = cases.inputs()

    def read(params: Any, query: Any, source: Any, key: Any) -> Any:
        arguments = {"params": params}, query, source, cases.causally(module), valid
        rngs = {"sample": key} if key is not None else {}
        return module.apply(*arguments, mutable=[MAPS, SAMPLES], rngs=rngs)

    made = jax.eval_shape(module.init, jax.random.key(0), query, source)
    assert floats(made) <= {jnp.dtype(np.float64)}
    shapes = made.get("params", {})
    params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, np.float32), shapes)
    for key in (None, jax.random.key(0)) if full_mode() else (jax.random.key(0),):
        actual = jax.eval_shape(read, params, query, source, key)
        assert floats(actual) == {jnp.dtype(np.float32)}


GAUSSIAN = {"name": "gaussian", "tau": 5.0}


@pytest.mark.parametrize(
    ("tokens", "fields"),
    [
        (256, {}),
        pytest.param(257, {"positions": "shaw"}, marks=pytest.mark.full),
        pytest.param(257, {"alignment": "sigmoid", "positions": "t5"}, marks=pytest.mark.full),
        pytest.param(512, {"alignment": "sink", "score": GAUSSIAN}, marks=pytest.mark.full),
    ],
)
def test_the_default_kernel_takes_long_looks_with_float64_possible(
    tokens: int, fields: dict[str, Any], float64: None
) -> None:
    """From 256 tokens on it works block by block."""
    module = cases.make("multihead", {"heads": 1, **fields})
    query, source, valid = cases.inputs(batch=1, queries=tokens, keys=tokens)
    given = (cases.parameters(module), query, source)

    def sloped(kernel: str) -> Any:
        def total(*arguments: Any) -> tuple[jax.Array, jax.Array]:
            params, query, source = arguments
            run = module.clone(kernel=kernel).apply
            context = run({"params": params}, query, source, CAUSAL, valid).context  # type: ignore[union-attr]
            return (context**2).sum(), context

        return jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))

    both = (jax.tree.leaves(sloped(kernel)(*cases.wide(given))) for kernel in ("auto", "plain"))
    for actual, expected in zip(*both, strict=True):
        assert actual.dtype == np.float64
        bound = cases.TOLERANCE["float64"] * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)
    assert floats(jax.eval_shape(sloped("auto"), *given)) == {jnp.dtype(np.float32)}


def test_a_kernel_that_softmaxes_in_float32_refuses_float64(float64: None) -> None:
    module, (query, source, _) = cases.make("multihead", {"heads": 2}), cases.inputs()
    arguments = ({"params": cases.parameters(module)}, query, source)
    attend = functools.partial(jax.eval_shape, module.clone(kernel="xla").apply)
    assert attend(*arguments).context.dtype == np.float32
    words = "kernel 'xla' softmaxes in float32.*float64.*kernel='plain' and kernel='blockwise' do"
    with pytest.raises(UserError, match=words):
        attend(*cases.wide(arguments))
