"""With truncated back-propagation a step goes on where the one before ended, on any devices, after
a stop, and without a gradient between.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.data.vocabulary import EOS, PAD
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.parallel import backend
from attnlab.training.states import saved_like
from attnlab.training.step import first_state, make_step
from tests.tasks.tiny_language import JOINED, joined, load, passed
from tests.training import toy
from tests.training.test_parallel import assert_close, trace


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
        picked = jnp.take_along_axis(
            jax.nn.log_softmax(logits), batch["target"][..., None], axis=-1
        )[..., 0]
        return (
            -jnp.where(batch["target"] != PAD, picked, 0.0).sum() / (batch["target"] != PAD).sum()
        )

    for before, after, grad in zip(
        *map(jax.tree.leaves, (params, second.params, jax.jit(jax.grad(loss))(params))), strict=True
    ):
        np.testing.assert_allclose(before - after, grad, atol=1e-6)


full = pytest.mark.full


@functools.cache
def traced(name: str, devices: int, accumulate: int) -> list[Any]:
    """State and metrics after each of four steps, the last two at the end and the beginning of an
    epoch.
    """
    task, _ = joined()
    ends = task.batches(1).batches_per_epoch
    batches = [task.batches(1)(number) for number in (0, 1, ends - 1, ends)]
    return trace(task, batches, name, devices, accumulate)


@pytest.mark.parametrize(
    ("name", "devices", "accumulate"),
    [
        ("mesh", 4, 2),
        *(
            pytest.param(*one, marks=full)
            for one in (("pmap", 4, 1), ("pmap", 2, 2), ("mesh", 2, 1))
        ),
    ],
)
def test_lanes_are_the_same_on_any_devices(name: str, devices: int, accumulate: int) -> None:
    """Parameters, losses and states of every lane, also where lanes end in one step and begin in
    the next.
    """
    found, expected = traced(name, devices, accumulate), traced("mesh", 1, 1)
    assert_close(found, expected)
    for number, ((one, _), (other, _)) in enumerate(zip(found, expected, strict=True)):
        # later states are made with parameters that differ by rounding themselves
        close = 1e-5 if number else 1e-6
        np.testing.assert_allclose(one.remembered["h"], other.remembered["h"], atol=close)
        np.testing.assert_array_equal(one.remembered["count"], other.remembered["count"])


@pytest.mark.full
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """With dropout, from a checkpoint in the middle of an epoch that holds what was remembered of 8
    lanes.
    """
    changes = [
        *("training.steps=8", "training.log_every=1", "training.evaluate_every=4"),
        *("checkpoint.every=2", "schedule.warmup=2"),
    ]
    task = load(*JOINED, *changes, "system.dropout=0.3")
    four = backend("pmap", 4)
    toy.run(tmp_path / "whole", task.config, task, batches=task.batches(4), place=four)
    outcome = toy.run(
        tmp_path / "cut", task.config, task, batches=task.batches(4), stop=5, place=four
    )
    assert (outcome.state, outcome.step) == ("interrupted", 5)
    outcome = toy.run(tmp_path / "cut", task.config, task, batches=task.batches(4), place=four)
    assert outcome.state == "done"
    assert (tmp_path / "whole" / "metrics.jsonl").read_bytes() == (
        tmp_path / "cut" / "metrics.jsonl"
    ).read_bytes()
    restored = []
    for name in ("whole", "cut"):
        checkpoints = Checkpoints(tmp_path / name / "checkpoints", 2, read_only=True)
        restored.append(checkpoints.restore(saved_like(task.config, task)))
        checkpoints.close()
    assert restored[0] is not None
    assert restored[0].tree.remembered["h"].shape == (8, 6)
    assert np.abs(restored[0].tree.remembered["h"]).min() > 0
    for one, other in zip(
        *(jax.tree.leaves(one.tree) for one in restored if one is not None), strict=True
    ):
        np.testing.assert_array_equal(one, other)
