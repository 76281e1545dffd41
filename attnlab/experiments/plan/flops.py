"""The work of a training step: XLA's own count of the lowered program, loops counted as often as
they run.

XLA counts the body of a loop once, whatever its length. The scans of the program are known from its
jaxpr, so that

    flops(f) = XLA(f) + sum over scans in f of (length x flops(body) - copies x XLA(body))

where `copies` of the body (one, unless the scan is unrolled) are in XLA's count of f already. The
program is counted as it is lowered for the CPU, before XLA fuses it: the same number on every
machine. A multiplication and an addition are two. Exponentials, logarithms, tanh, roots, powers and
the like are no FLOPs; XLA counts them apart, as "transcendentals", one for each element, and loops
multiply them in the same way. The most expensive side of a branch counts; the body of a loop of
unknown length counts once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.extend.core as jex
import numpy as np

from attnlab.tasks.schemas import Settings
from attnlab.training.gradients import idle
from attnlab.training.step import averages, seed_array
from attnlab.training.trained import Trained
from attnlab.training.updates import Updates


@dataclasses.dataclass(frozen=True)
class Work:
    """What a call of a program costs.

    Attributes:
      flops: additions, multiplications and the like.
      transcendentals: exponentials, logarithms, tanh, roots, powers and the like, elements of them.
      loops: places in the program that repeat until a condition holds; each was counted once, so
        that both counts are too low.
      idle: of a training step, the paths of the parameters that get no gradient, see
        `attnlab.training.gradients`, and are no running averages, which the step moves.
    """

    flops: float
    transcendentals: float
    loops: int = 0
    idle: tuple[str, ...] = ()


def step_work(config: Settings, task: Any) -> Work:
    """The work of one training step (forward, backward, update) on the mean batch of an epoch.

    The mean batch has the mean width of the batches of an epoch, and as many rows as give their
    mean number of positions, both rounded: exact except for rounding if the cost is linear in the
      width, a little low if it is quadratic.

    Args:
      config: the whole config.
      task: with its data.
    """
    step, state, batch = _step(config, task)
    kept = {
        name: getattr(state, name)
        for name in ("carried", "remembered")
        if getattr(state, name) is not None
    }
    key, seen = jax.eval_shape(lambda: jax.random.key(0)), Trained.of(config).seen
    moved: set[str] = set()

    def loss(params: Any, batch: Any, key: Any, kept: Any) -> Any:
        value, sums = task.loss(seen(params), batch, key, **kept)
        moved.update("/".join(path) for path in averages(sums.get("statistics", {})))
        return value

    unused = idle(loss, state.params, batch, key, kept)
    still = tuple(path for path in unused if path not in moved)
    return dataclasses.replace(work(step, state, batch), idle=still)


def step_flops(config: Settings, task: Any) -> float:
    """The FLOPs of `step_work` alone."""
    return flops(*_step(config, task))


def _step(config: Settings, task: Any) -> tuple[Callable[..., Any], Any, Any]:
    """The step of a config, and the shapes of its state and of its mean batch."""
    updates, parts = Updates.of(config), config.training.accumulate
    state = updates.state_like(task).replace(seed=seed_array(config.seed))
    return updates.step(task), state, mean_batch(task.batches(parts), parts)


def mean_batch(batches: Any, multiple: int) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes of a batch of mean size, its rows a multiple of `multiple`. Only the axes that are
    as long as a batch is wide get the mean width: not those of images, or of the several questions
    about one.
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
    """The axes, by column, that are as long as a batch is wide: those that are so in two batches of
    different widths. None where there is one width.
    """
    used = [
        width for (_, width), count in zip(batches.shapes, batches.counts, strict=True) if count
    ]
    first, widths = batches(0), {*used}
    for step in range(1, sum(batches.counts) if len(widths) > 1 else 1):
        other = batches(step)
        found = {
            (name, axis)
            for name, array in first.items()
            for axis, sizes in enumerate(zip(array.shape, other[name].shape, strict=True))
            if axis and sizes[0] != sizes[1] and {*sizes} <= widths
        }
        if found:
            return found
    return set()


def flops(function: Callable[..., Any], *arguments: Any) -> float:
    """The FLOPs of `work` alone."""
    return work(function, *arguments).flops


def work(function: Callable[..., Any], *arguments: Any) -> Work:
    """Of one call, for arguments (arrays, or their shapes) of these shapes."""
    traced = jax.jit(function).trace(*arguments)
    counted = _xla(traced.lower()) + _beyond(traced.jaxpr.jaxpr)
    return Work(float(counted[0]), float(counted[1]), _unknown(traced.jaxpr.jaxpr))


def _beyond(jaxpr: jex.Jaxpr) -> np.ndarray:
    """What XLA's count of a jaxpr omits: all iterations after the first of every scan; [2] as
    `_xla`.
    """
    total = np.zeros(2)
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "scan":
            body = equation.params["jaxpr"]
            once = _xla(_lowered(body))
            total += (
                equation.params["length"] * (once + _beyond(body.jaxpr))
                - _copies(**equation.params) * once
            )
        elif name == "cond":
            sides = [_beyond(branch.jaxpr) for branch in equation.params["branches"]]
            names = equation.params.get("branches_platforms")  # of those that platforms choose
            if names is not None:
                sides = [sides[[one is None or "cpu" in one for one in names].index(True)]]
            total += np.max(sides, axis=0, initial=0.0)
        elif name != "pallas_call":
            total += sum(map(_beyond, _inner(equation.params)), np.zeros(2))
    return total


def _unknown(jaxpr: jex.Jaxpr) -> int:
    """How many loops of unknown length stand in a jaxpr."""
    inside = sum(_unknown(inner) for equation in jaxpr.eqns for inner in _inner(equation.params))
    return inside + sum(equation.primitive.name == "while" for equation in jaxpr.eqns)


def _copies(length: int, unroll: int, **_: Any) -> int:
    """How many copies of the body of a scan its program has: in the loop, and after it for the
    remainder.
    """
    if unroll == 0:
        return length
    return (unroll if length >= unroll else 0) + length % unroll


def _inner(params: dict[str, Any]) -> Iterator[jex.Jaxpr]:
    """The programs inside an equation (jit, remat, custom derivatives)."""
    for value in params.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(
                one, "jaxpr", one
            )  # what is closed over constants is of another class in some versions of jax
            if isinstance(inner, jex.Jaxpr):
                yield inner


def _lowered(body: Any) -> Any:
    shapes = [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in body.in_avals]
    return jax.jit(jex.jaxpr_as_fun(body)).lower(*shapes)


def _xla(lowered: Any) -> np.ndarray:
    """XLA's count: FLOPs and transcendental operations, [2] float64."""
    counted = lowered.cost_analysis() or {}
    return np.array([counted.get("flops", 0.0), counted.get("transcendentals", 0.0)])
