"""What the loop of a system that looks at every step shares, and what it stacks."""

from __future__ import annotations

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
    x, constant = jnp.ones((B, T, 3)), jnp.arange(H, dtype=jnp.float32)
    params = Looker().init(jax.random.key(0), x, constant)["params"]
    assert jax.tree.map(jnp.shape, params) == {"raised": {"kernel": (3, H), "bias": (H,)}}
    (last, states), aside = Looker().apply({"params": params}, x, constant, mutable=[MAPS, LOSSES])
    one = np.asarray(x[0, 0] @ params["raised"]["kernel"] + params["raised"]["bias"] + constant)
    np.testing.assert_allclose(states[0], one * np.arange(1, T + 1)[:, None], rtol=1e-5)
    np.testing.assert_array_equal(last, states[:, -1])
    assert aside[MAPS]["weights"][0].shape == (B, 1, T, 1, N) and aside[LOSSES]["looks"][
        0
    ].shape == (B, T, 1)
    np.testing.assert_array_equal(aside[MAPS]["weights"][0][0, 0, :, 0, 0], states[0, :, 0])
    _, dropped = Looker().apply(
        {"params": params}, x, constant, rngs={"dropout": jax.random.key(1)}
    )
    zeros = np.diff(np.asarray(dropped), axis=1, prepend=0)[0] == 0
    assert 0 < zeros.sum() < zeros.size and not (zeros == zeros[:1]).all()
