"""The work of a training step, as `attnlab.analysis.work` counts programs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from attnlab.analysis.work import Work, flops, work
from attnlab.tasks.schemas import Settings
from attnlab.training.gradients import idle_paths
from attnlab.training.step import averages
from attnlab.training.trained import Trained
from attnlab.training.updates import Updates


def step_work(config: Settings, task: Any) -> Work:
    """Returns the `Work` (FLOPs and more) of one training step (forward, backward, update) on the
    mean batch of an epoch of the task's data, with the paths of the trained parameters that get no
    gradient and are no running averages as `idle`.

    The mean batch has the mean width of the batches of an epoch, and as many rows as give their
    mean number of positions, both rounded: exact except for rounding if the cost is linear in the
      width, a little low if it is quadratic.

    Args:
      config: the whole config.
      task: with its data.
    """
    step, state, batch = _step(config, task)
    carried = {name: getattr(state, name) for name in ("carried", "remembered")}
    carried = {name: value for name, value in carried.items() if value is not None}
    key, seen = jax.eval_shape(lambda: jax.random.key(0)), Trained.of(config).merge
    moved: set[str] = set()

    def loss(params: Any, batch: Any, key: Any, carried: Any) -> Any:
        value, sums = task.loss(seen(params), batch, key, **carried)
        moved.update("/".join(path) for path in averages(sums.get("statistics", {})))
        return value

    unused = idle_paths(loss, state.params, batch, key, carried)
    still = tuple(path for path in unused if path not in moved)
    return dataclasses.replace(work(step, state, batch), idle=still)


def step_flops(config: Settings, task: Any) -> float:
    """Returns the FLOPs of `step_work` alone."""
    return flops(*_step(config, task))


def _step(config: Settings, task: Any) -> tuple[Callable[..., Any], Any, Any]:
    """Returns the training step function of a config, and the shapes of its state and of its mean
    batch.
    """
    updates, parts = Updates.of(config), config.training.accumulate
    state = updates.state_like(task)
    return updates.step(task), state, mean_batch(task.batches(parts), parts)


def mean_batch(batches: Any, multiple: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns {column: shape and dtype} of a batch that has the mean width and mean number of
    positions of an epoch's `batches`, its number of rows a multiple of `multiple`. Only the axes
    that are as long as a batch is wide get the mean width: not those of images, or of the several
    questions about one.
    """
    rows, widths = np.transpose(batches.shapes)
    width = np.average(widths, weights=batches.counts)
    positions = np.average(rows * widths, weights=batches.counts)
    count = max(1, round(positions / width / multiple)) * multiple
    first, wide = batches(0), _wide(batches)

    def mean(name: str, array: np.ndarray) -> tuple[int, ...]:
        sizes = enumerate(array.shape[1:], 1)
        return (count, *(round(width) if (name, axis) in wide else size for axis, size in sizes))

    return {
        name: jax.ShapeDtypeStruct(mean(name, array), array.dtype) for name, array in first.items()
    }


def _wide(batches: Any) -> set[tuple[str, int]]:
    """Returns the axes, as (column, axis), whose length is the width of the batch, found from two
    batches of different widths; none if all have one width.
    """
    used = [
        width for (_, width), count in zip(batches.shapes, batches.counts, strict=True) if count
    ]
    first, widths = batches(0), {*used}
    for step in range(1, sum(batches.counts) if len(widths) > 1 else 1):
        other = batches(step)
        axes = {
            (name, axis)
            for name, array in first.items()
            for axis, sizes in enumerate(zip(array.shape, other[name].shape, strict=True))
            if axis and sizes[0] != sizes[1] and {*sizes} <= widths
        }
        if axes:
            return axes
    return set()
