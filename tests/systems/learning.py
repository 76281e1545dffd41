"""Fits a tiny system to a few examples, as the promise of learning by heart asks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import optax

from attnlab.layers.norms import STATISTICS
from attnlab.training.drawing import first_params

STEPS = 120


def fitted(
    system: Any, read: tuple[Any, ...], cost: Callable[[Any], jax.Array], steps: int = STEPS
) -> tuple[float, float]:
    """`cost` of what a system says of `read`, before the first and after the last update of Adam.

    Norms see the batch, and what draws is given a random stream, as in training.
    """
    params = first_params(system.init, jax.random.key(0), *read)["params"]
    optimizer = optax.adam(optax.cosine_decay_schedule(2e-2, steps))

    def update(carry: Any, key: Any) -> tuple[Any, jax.Array]:
        params, state = carry

        def loss(params: Any) -> jax.Array:
            found, _ = system.apply(
                {"params": params}, *read, mutable=[STATISTICS], rngs={"sample": key}
            )
            return cost(found)

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state)
        return (optax.apply_updates(params, updates), state), value

    @jax.jit
    def losses_of(params: Any) -> jax.Array:
        keys = jax.random.split(jax.random.key(1), steps)
        return jax.lax.scan(update, (params, optimizer.init(params)), keys)[1]

    losses = losses_of(params)
    return float(losses[0]), float(losses[-1])
