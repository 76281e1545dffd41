"""The first training state is a function of the seed, and a checkpoint holds all of it but the seed.
First parameters are those of a jitted `init`, and nothing but draws is computed for them.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.training.updates import Updates, first_params
from tests.training.toy import Line, settings


def test_the_first_state_is_a_function_of_the_seed() -> None:
    states = Updates.of(settings()).first_states(Line())
    first, repeated, other = states(3), states(3), states(4)
    assert np.array_equal(first.params["w"], repeated.params["w"]) and int(first.seed) == 3
    assert not np.array_equal(first.params["w"], other.params["w"]) and int(first.step) == 0
    np.testing.assert_array_equal(first.params["w"], Line().init(jax.random.key(3))["w"])


class Model(nn.Module):
    """Parameters of several kinds, and a pass that must not be computed."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.Dense(3, bias_init=nn.initializers.truncated_normal(0.1))(x)
        scale = self.param("scale", lambda key: jnp.full(3, 2.0))
        return nn.Dense(2)(jnp.tanh(x) * scale)


def init(key: jax.Array, x: jax.Array) -> Any:
    return Model().init(key, x)["params"]


@pytest.mark.quick
def test_equal_to_a_jitted_init() -> None:
    key, x = jax.random.key(3), jnp.ones((2, 5))
    actual, expected = first_params(init, key, x), jax.jit(init)(key, x)
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for leaf, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert leaf.dtype == other.dtype and leaf.shape == other.shape
        np.testing.assert_allclose(leaf, other, rtol=1e-6, atol=1e-7)


@pytest.mark.quick
def test_what_no_result_needs_is_not_computed() -> None:
    def draw(key: jax.Array) -> jax.Array:
        values = jax.random.normal(key, (2,))
        jax.pure_callback(_never, values, values)
        return 2 * values

    key = jax.random.key(0)
    np.testing.assert_allclose(first_params(draw, key), 2 * jax.random.normal(key, (2,)))


def _never(drawn: np.ndarray) -> np.ndarray:
    raise AssertionError("nothing asks for it")


@pytest.mark.quick
def test_results_that_are_given_or_constant() -> None:
    x = jnp.arange(3.0)
    same, constant = first_params(lambda x: (x, np.float32(4)), x)
    assert constant == 4 and np.array_equal(same, x)
