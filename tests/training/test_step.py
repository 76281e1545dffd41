"""The step function minimises the mean over the weight, however it is accumulated, and keeps its
promises on averages, precision, randomness and an empty batch.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.training.step import TrainState, first_state, make_step, seed_array
from attnlab.training.updates import first_params
from tests.tasks.tiny import batch_of, load
from tests.training.toy import ROWS, Line, Loss, Noisy, points

SGD = optax.sgd(1.0)


def one_step(
    task: Any,
    batch: Any,
    optimizer: optax.GradientTransformation = SGD,
    state: TrainState | None = None,
    **how: Any,
) -> Any:
    """The state and metrics after one step from `state`, or from the task's first parameters."""
    state = state or first_state(
        task.init(jax.random.key(0)), optimizer, how.get("ema", 0.0), seed=how.pop("seed", 0)
    )
    return jax.jit(make_step(task.loss, task.weight, optimizer, **how))(state, batch)


@pytest.mark.quick
@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_objective_is_the_sum_over_the_weight_however_it_is_accumulated(accumulate: int) -> None:
    batch = points(2)  # 6 rows of 8 count: the microbatches have unequal weights
    state, metrics = one_step(Line(), batch, accumulate=accumulate)
    params = jax.device_get(Line().init(jax.random.key(0)))
    error = batch["source"].astype(np.float64) @ params["w"] + params["b"] - batch["target"]
    error = error * batch["real"]
    assert float(metrics["loss"]) == pytest.approx(0.5 * (error**2).sum() / 6, rel=1e-6)
    slope = error @ batch["source"] / 6
    np.testing.assert_allclose(params["w"] - state.params["w"], slope, atol=1e-6)
    np.testing.assert_allclose(params["b"] - state.params["b"], error.sum() / 6, atol=1e-6)
    assert float(metrics["tokens"]) == 6 and int(state.step) == 1
    norm = np.sqrt(((error @ batch["source"] / 6) ** 2).sum() + (error.sum() / 6) ** 2)
    assert float(metrics["grad_norm"]) == pytest.approx(norm, rel=1e-6)


def test_reported_gradient_norm_is_that_before_clipping() -> None:
    clipped = optax.chain(optax.clip_by_global_norm(1e-3), SGD)
    state, metrics = one_step(Line(), points(0), clipped)
    before = Line().init(jax.random.key(0))
    moved = optax.tree.norm(jax.tree.map(jnp.subtract, before, state.params))
    assert float(moved) == pytest.approx(1e-3, rel=1e-3) and float(metrics["grad_norm"]) > 0.1


def test_moving_average() -> None:
    """a_t = 0.8 a_{t-1} + 0.2 p_t, a_0 = p_0; without it there is none."""
    task, optimizer = Line(), optax.sgd(0.1)
    state = first_state(task.init(jax.random.key(0)), optimizer, 0.8)
    average = jax.device_get(task.init(jax.random.key(0)))
    step = jax.jit(make_step(task.loss, task.weight, optimizer, ema=0.8))
    for number in range(4):
        state, _ = step(state, points(number))
        average = jax.tree.map(lambda a, p: 0.8 * a + 0.2 * np.asarray(p), average, state.params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), state.ema, average)
    assert state.averaged is state.ema
    plain, _ = one_step(task, points(0))
    assert plain.ema is None and plain.averaged is plain.params


def test_randomness_is_a_function_of_seed_and_step() -> None:
    task = Noisy()
    start = first_state(task.init(jax.random.key(0)), SGD, 0.0, seed=3)
    step = jax.jit(make_step(task.loss, task.weight, SGD))
    after, one = step(start, points(0))
    assert float(step(start, points(0))[1]["loss"]) == float(one["loss"])
    assert float(step(after, points(0))[1]["loss"]) != float(one["loss"])
    assert float(step(after.replace(step=start.step), points(0))[1]["loss"]) == float(one["loss"])
    assert float(one_step(task, points(0), seed=4)[1]["loss"]) != float(one["loss"])


@pytest.mark.parametrize("seed", [0, 7, 2**31, 2**32 - 1, 2**32 + 5])
def test_the_seed_of_the_state_makes_the_key_of_the_number(seed: int) -> None:
    """Bit for bit the key that a step had when its seed was a constant of the program."""
    np.testing.assert_array_equal(
        *(jax.random.key_data(jax.random.key(one)) for one in (seed, seed_array(seed)))
    )
    _, metrics = one_step(Noisy(), points(0), seed=seed)
    draws = jax.random.uniform(jax.random.fold_in(jax.random.key(seed), 0), (ROWS,))
    assert float(metrics["squares"]) == pytest.approx(float((draws**2).sum()), rel=1e-6)
    assert seed_array(seed).dtype == np.uint32 and seed_array(seed).shape == ()


def test_microbatches_draw_apart() -> None:
    """With the same key twice, the two halves of the rows would have equal draws."""
    task = Noisy()
    key = jax.random.fold_in(jax.random.key(0), 0)
    halves = jax.random.split(key, 2)
    draws = jnp.concatenate([jax.random.uniform(one, (ROWS // 2,)) for one in halves])
    _, metrics = one_step(task, points(0), accumulate=2)
    assert len(np.unique(draws)) == ROWS
    assert float(metrics["loss"]) == pytest.approx(float(draws.mean()), rel=1e-6)


def test_bfloat16_computes_low_and_keeps_float32() -> None:
    """The loss sees bfloat16 parameters; parameters, optimizer, moving average and metrics stay
    float32.
    """
    seen: list[Any] = []

    class Watched(Line):
        def loss(self, params: Any, batch: Any, key: jax.Array) -> Loss:
            seen.extend(leaf.dtype for leaf in jax.tree.leaves(params))
            return super().loss(params, batch, key)

    how = {"compute": "bfloat16", "ema": 0.5, "accumulate": 2}
    state, metrics = one_step(Watched(), points(0), optax.adam(0.1), **how)
    assert set(seen) == {jnp.dtype(jnp.bfloat16)}
    types = {leaf.dtype for leaf in jax.tree.leaves((state, metrics))}
    assert {one for one in types if jnp.issubdtype(one, jnp.floating)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize(
    "system", [pytest.param("rnnsearch", marks=pytest.mark.full), "transformer"]
)
def test_systems_in_bfloat16_and_a_batch_of_nothing(system: str) -> None:
    """bfloat16 gives almost the same loss and float32 parameters; a batch that is all padding gives
    no update and no NaN.
    """
    task, optimizer = load(system), optax.adam(1e-2)
    batch = batch_of(task)
    start = first_state(first_params(task.init, jax.random.key(0)), optimizer, 0.0)
    steps = [
        jax.jit(make_step(task.loss, task.weight, optimizer, compute="bfloat16")),
        jax.jit(make_step(task.loss, task.weight, optimizer)),
    ]
    (after, metrics), (_, exact) = (step(start, batch) for step in steps)
    assert float(metrics["loss"]) == pytest.approx(float(exact["loss"]), rel=1e-2)
    assert float(metrics["grad_norm"]) == pytest.approx(float(exact["grad_norm"]), rel=5e-2)
    assert {leaf.dtype for leaf in jax.tree.leaves(after.params)} == {jnp.dtype(jnp.float32)}

    empty = {name: np.zeros_like(rows) for name, rows in batch.items()}
    for step in steps:
        after, metrics = step(start, empty)
        assert all(float(value) == 0.0 for value in metrics.values())
        jax.tree.map(np.testing.assert_array_equal, after.params, start.params)
