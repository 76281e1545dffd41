"""A compiled program belongs to shapes: other numbers run the same one, and no coefficient loses
digits on its way into it. That optimizers and schedules compute with what they are given is asked
in `test_optimizers.py`.
"""

import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from attnlab.records.stream import read_records
from attnlab.training import programs
from attnlab.training.arguments import pack, unpack
from attnlab.training.hyperparameters import numbers
from attnlab.training.updates import Updates
from tests.training.toy import Line, points, run, settings


@pytest.mark.quick
def test_twelve_rates_and_two_lengths_are_one_program() -> None:
    """Of as many seeds."""
    lowered, cases = set(), itertools.product((9, 10), np.geomspace(1e-4, 1e-1, 12).tolist())
    for seed, (steps, peak) in enumerate(cases):
        updates = Updates.of(settings(seed=seed, training__steps=steps, schedule__peak=peak))
        program = jax.jit(updates.step(Line())).lower(updates.state_like(Line()), points(0))
        lowered.add(program.as_text())
    assert len(lowered) == 1


def test_another_rate_and_length_need_no_compiler(tmp_path: Path) -> None:
    """What a new process would compile is kept by an earlier one."""
    programs.count()
    for steps, rate in ((6, {}), (7, {"schedule__peak": 0.03, "schedule__warmup": 3})):
        jax.clear_caches()
        run(tmp_path / str(steps), settings(training__steps=steps, **rate))
    lines = [row for row in read_records(tmp_path / "7" / "timing.jsonl") if "loaded" in row]
    assert sum(row["compiled"] for row in lines) == 0 < sum(row["loaded_seconds"] for row in lines)


def weighed(params: Any, batch: Any, key: jax.Array, *, numbers: Any) -> Any:
    """The loss of a line, and two numbers in different places."""
    loss, sums = Line().loss(params, batch, key)
    return loss + 100 * numbers["training.label_smoothing"] + numbers["auxiliary.hops"], sums


def test_the_loss_gets_its_numbers_from_the_state() -> None:
    config, task = settings(), Line()
    config.auxiliary, task.loss = {"hops": 7.0}, weighed  # type: ignore[method-assign]
    config.training.label_smoothing = 0.5
    updates, batch = Updates.of(config), points(0)
    state = updates.first_states(task)(0)
    loss = updates.step(task)(state, batch)[1]["loss"] * batch["real"].sum()
    plain = Line().loss(state.params, batch, jax.random.key(0))[0]
    assert float(loss - plain) == pytest.approx(57.0, rel=1e-5)


def test_complements_are_computed_before_they_are_rounded() -> None:
    config = settings(training__ema=0.9999)
    ema = unpack(numbers(config), jax.numpy.asarray(pack(config)))["training.ema"]
    assert ema.value == np.float32(0.9999) and 1.0 - ema == np.float32(1 - 0.9999)
    assert float(3 - ema) == pytest.approx(2.0001) and float(-ema * 2) == pytest.approx(-1.9998)
