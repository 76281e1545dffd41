"""What is special to the non-local blocks; values, slopes and costs: tests/layers/gates."""

from typing import Any

import jax
import numpy as np
import pytest

from attnlab.attention.protocol import MAPS
from tests.layers.gates.cases import SHAPE, drawn, make, maps
from tests.rounding import assert_close

FORMS = ["non_local", "non_local_gaussian", "non_local_dot", "non_local_concat"]
PLACES = SHAPE[1] * SHAPE[2]


def run(name: str, fields: dict[str, Any], x: np.ndarray) -> Any:
    """y and the collected maps, in float64."""
    gate = make(name, fields)
    with jax.enable_x64(True):
        variables = {"params": drawn(gate)}
        y, left = jax.jit(lambda x: gate.apply(variables, x, mutable=[MAPS]))(x)
    (weights,) = left[MAPS]["attention"]["weights"]
    return np.asarray(y), np.asarray(weights)


@pytest.mark.parametrize("name", FORMS)
def test_a_block_starts_as_the_identity(name: str) -> None:
    """Exactly, and its last matrix has a slope."""
    gate, x = make(name, {"pool": 2}), maps().astype(np.float32)

    @jax.jit
    def begun(x: Any) -> Any:
        variables = gate.init(jax.random.key(0), x)
        loss = lambda variables: (gate.apply(variables, x) ** 2).sum()
        return gate.apply(variables, x), jax.grad(loss)(variables)["params"]

    y, slope = begun(x)
    np.testing.assert_array_equal(y, x)
    assert np.abs(slope["out"]["kernel"]).max() > 0
    assert all(np.abs(leaf).max() == 0 for name, leaf in slope["g"].items())


@pytest.mark.parametrize("name", FORMS)
def test_places_in_another_order_give_the_same_in_that_order(name: str) -> None:
    x, order = maps(), np.random.default_rng(0).permutation(PLACES)

    def turned(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(x), PLACES, -1)[:, order].reshape(x.shape)

    y, weights = run(name, {}, x)
    other, _ = run(name, {}, turned(x))
    np.testing.assert_allclose(other, turned(y), atol=1e-11)
    assert weights.shape == (2, 1, PLACES, PLACES)
    if name in ("non_local", "non_local_gaussian"):
        np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-9)


def test_pooling_leaves_a_quarter_of_the_keys() -> None:
    x = maps((1, 6, 4, 6))
    _, weights = run("non_local", {"pool": 2}, x)
    assert weights.shape == (1, 1, 24, 6)


@pytest.mark.parametrize("name", ["non_local", "non_local_dot", "non_local_concat"])
def test_kernels_do_not_change_the_result(name: str) -> None:
    """Blockwise attention never has the weights of all places; its slopes are the same too."""
    x = maps((1, 9, 8, 4)).astype(np.float32)
    params = jax.tree.map(np.float32, drawn(make(name, {}), x.shape))
    actual = []
    for kernel in ("plain", "blockwise"):
        gate = make(name, {"kernel": kernel, "pool": 2})
        loss = lambda params, gate=gate: (gate.apply({"params": params}, x) ** 2).sum()
        actual.append(jax.jit(jax.value_and_grad(loss))(params))
    for one, other in zip(*map(jax.tree.leaves, actual), strict=True):
        assert_close(one, other, eps=8)
