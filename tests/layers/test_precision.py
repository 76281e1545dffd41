"""The precision of the inner computation: float64 where float64 comes in, float32 for everything
else, with `jax_enable_x64` as without.

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
from attnlab.layers.dense import inner_dtype, widened
from tests.attention import cases
from tests.sampling import full_mode

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
