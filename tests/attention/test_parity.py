"""Multi-head attention equals torch's: the numbers of `golden.npz` always, torch itself where it is
installed.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.traverse_util import unflatten_dict

from attnlab.attention.mechanisms.multihead import MultiHead
from attnlab.attention.protocol import MAPS
from attnlab.attention.view import CAUSAL, EVERYTHING
from tests.attention import golden
from tests.attention.cases import TOLERANCE, committed

DRAWN = ("causal=True-bias=True", "causal=False-bias=False", "causal=True-key_heads=2")
CASES = [
    pytest.param(name, marks=[] if name.endswith(DRAWN) else [pytest.mark.full])
    for name in committed(golden.FILE)
]


def assert_parity(case: dict[str, Any]) -> None:
    """Context, weights and gradients of ours beside those of a case, in float64."""
    heads, key_heads = int(case["heads"]), int(case["key_heads"])
    params = unflatten_dict(case, sep="/")["params"]
    bias = "bias" in params["out"]
    module = MultiHead(width=heads * golden.D, heads=heads, key_heads=key_heads, bias=bias)
    view = CAUSAL if case["causal"] else EVERYTHING
    query, source, direction = (case[x] for x in ("query", "source", "direction"))

    def attend(query: Any, source: Any) -> Any:
        rest = (query, source, view, case["valid"])
        return module.apply({"params": params}, *rest, mutable=[MAPS])[0]

    @jax.jit
    def looked(query: Any, source: Any) -> tuple[Any, Any]:
        reading, pull = jax.vjp(attend, query, source)
        zero = jnp.zeros_like(reading.weights)
        return reading, pull(reading.replace(context=direction, weights=zero))

    reading, grads = looked(query, source)
    pairs = [(reading.context, case["context"])]
    if "weights" in case:
        pairs.append((reading.weights, case["weights"]))
    for side, grad in zip(("query", "source"), grads, strict=True):
        pairs.append((grad, case[f"grads/{side}"]))
    for actual, expected in pairs:
        assert actual.dtype == np.float64
        bound = TOLERANCE["float64"] * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(actual, expected, rtol=0, atol=bound)


@pytest.mark.quick
@pytest.mark.product("golden")
@pytest.mark.parametrize("case", CASES)
def test_golden_values(case: str, float64: None) -> None:
    assert_parity(committed(golden.FILE)[case])


def test_the_golden_file_is_small_and_whole() -> None:
    assert golden.FILE.stat().st_size < 150_000
    for case in committed(golden.FILE).values():
        assert {"query", "source", "valid", "context", "params/out/kernel"} <= set(case)
        assert {"grads/query", "grads/source"} <= set(case)
        assert not case["valid"].all()


def test_torch_itself(float64: None) -> None:
    """Numbers drawn anew; and the committed ones are what torch gives today."""
    pytest.importorskip("torch", reason="the committed numbers stand in for torch")
    for name, arrays in golden.cases():
        for part, array in arrays.items():
            np.testing.assert_allclose(
                committed(golden.FILE)[name][part], array, rtol=0, atol=1e-12
            )
    for _, arrays in golden.cases(seed=1):
        assert_parity(arrays)
