"""With truncated back-propagation a step goes on where the one before ended, and without a gradient
between; on any devices and after a stop: tests/training/test_parallel.py and test_loop.py.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.data.vocabulary import EOS, PAD
from attnlab.training.step import first_state, make_step
from tests.tasks.tiny_language import joined, passed


@pytest.mark.quick
def test_what_a_step_leaves_is_where_the_next_goes_on() -> None:
    """With parameters that stay as they are: losses and states of an epoch are those of every lane
    read at once, then all is fresh.
    """
    task, params = joined()
    batches = task.batches(1)
    ids, n = task.data.ids["train"].ids, batches.batches_per_epoch
    columns = -(-len(ids) // 8)
    before = np.append([EOS], ids[:-1])
    state = first_state(params, optax.sgd(0.0), 0.0, remembered=task.remembered())
    step = jax.jit(make_step(task.loss, task.weight, optax.sgd(0.0)))
    for number in range(n + 1):
        batch = batches(number)
        state, metrics = step(state, batch)
        begin, end = (0, min((number + 1) * 5, columns)) if number < n else (0, 5)
        nats = 0.0
        for row in range(8):
            lane = slice(row * columns + begin, min(row * columns + end, (row + 1) * columns))
            log_p, h = passed(params, before[lane])
            nats -= log_p[np.arange(len(log_p)), ids[lane]][number * 5 if number < n else 0 :].sum()
            np.testing.assert_allclose(state.remembered["h"][row], h, atol=1e-5)
            assert state.remembered["count"][row] == len(log_p)
        assert float(metrics["loss"]) == pytest.approx(
            nats / (batch["target"] != PAD).sum(), rel=1e-5
        )


def test_no_gradient_goes_back_into_the_step_before() -> None:
    """The gradient of the second step is that of a loss that begins with a constant state."""
    task, params = joined()
    batches, sgd = task.batches(1), optax.sgd(1.0)
    step = jax.jit(make_step(task.loss, task.weight, sgd))
    start = first_state(params, optax.sgd(0.0), 0.0, remembered=task.remembered())
    first, _ = jax.jit(make_step(task.loss, task.weight, optax.sgd(0.0)))(start, batches(0))
    second, _ = step(first.replace(opt_state=sgd.init(params)), batches(1))
    h = jax.device_get(first.remembered["h"])

    def loss(params: Any) -> jax.Array:
        batch = batches(1)
        state = {"h": jnp.asarray(h), "count": jnp.zeros(8, jnp.int32)}
        logits, _ = task.system.apply({"params": params}, state, batch["source"], method="read")
        real = batch["target"] != PAD
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["target"])
        return jnp.where(real, losses, 0.0).sum() / real.sum()

    for before, after, grad in zip(
        *map(jax.tree.leaves, (params, second.params, jax.jit(jax.grad(loss))(params))), strict=True
    ):
        np.testing.assert_allclose(before - after, grad, atol=1e-6)
