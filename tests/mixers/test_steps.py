"""The loop of a system that looks at every step shares parameters and stacks what steps leave."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from attnlab.attention.protocol import LOSSES, MAPS
from attnlab.mixers.steps import over_time

B, T, N, H = 2, 4, 3, 5


class Looker(nn.Module):
    """Adds to its state what a step is given, through one matrix and dropout, and leaves a map and
    a loss of one query aside.
    """

    def setup(self) -> None:
        self.raised = nn.Dense(H)
        self.drop = nn.Dropout(0.5)

    def __call__(self, x: jax.Array, constant: jax.Array) -> tuple[Any, Any]:
        def step(
            module: Looker, state: jax.Array, here: jax.Array, constant: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            state = state + module.drop(
                module.raised(here) + constant, deterministic=not module.has_rng("dropout")
            )
            module.sow(MAPS, "weights", jnp.broadcast_to(state[:, None, None, :1], (B, 1, 1, N)))
            module.sow(LOSSES, "looks", state[:, :1])
            return state, state

        return over_time(step)(self, jnp.zeros((B, H)), x, constant)  # type: ignore[no-any-return]


@pytest.mark.quick
def test_parameters_are_shared_looks_stacked_and_draws_are_each_steps_own() -> None:
    x, constant = np.ones((B, T, 3), np.float32), np.arange(H, dtype=np.float32)

    @jax.jit
    def found(key: jax.Array) -> Any:
        variables = Looker().init(key, x, constant)
        variables = {"params": variables["params"]}
        looked = Looker().apply(variables, x, constant, mutable=[MAPS, LOSSES])
        dropped = Looker().apply(variables, x, constant, rngs={"dropout": key})
        return variables["params"], looked, dropped[1]

    params, ((last, states), aside), dropped = jax.device_get(found(jax.random.key(0)))
    assert jax.tree.map(np.shape, params) == {"raised": {"kernel": (3, H), "bias": (H,)}}
    first = x[0, 0] @ params["raised"]["kernel"] + params["raised"]["bias"] + constant
    np.testing.assert_allclose(states[0], first * np.arange(1, T + 1)[:, None], rtol=1e-5)
    np.testing.assert_array_equal(last, states[:, -1])
    weights = aside[MAPS]["weights"][0]
    assert weights.shape == (B, 1, T, 1, N) and aside[LOSSES]["looks"][0].shape == (B, T, 1)
    np.testing.assert_array_equal(weights[0, 0, :, 0, 0], states[0, :, 0])
    zeros = np.diff(dropped, axis=1, prepend=0)[0] == 0
    assert 0 < zeros.sum() < zeros.size and not (zeros == zeros[:1]).all()
