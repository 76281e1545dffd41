"""`train --dry-run`: what a run will take, before it trains: parameters, bytes, FLOPs, batches, time.

Nothing is written and no parameter is drawn: a step is compiled for the largest batches, and timed
on a state of zeros.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from attnlab.analysis.work import flops
from attnlab.errors import UserError
from attnlab.progress import clock, table
from attnlab.training.kinds import by_path

if TYPE_CHECKING:
    from attnlab.training.run import Run

SEEN = 256  # batches, of which the largest is compiled
TIMED = 3  # steps
Batch = Mapping[str, np.ndarray]


def print_outlook(run: Run) -> None:
    """Prints what a run will take: compiles the step for its largest batches and times three steps.

    Raises:
      UserError: several processes, or a run that reads no data.
    """
    if jax.process_count() > 1:
        raise UserError("--dry-run is for one process; start it once, without the other processes")
    steps = run.config.training.steps
    sizes, largest = _batches(run, min(SEEN, steps))
    like = run.updates.state_like(run.task)
    params, average = jax.tree.leaves(like.params), jax.tree.leaves(like.ema)
    table("parameters", ("part", "number"), [*_parts(like.params), ("all", _size(params))])
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
    state = run.devices.place(zeros.replace(seed=like.seed, numbers=like.numbers))
    began = time.perf_counter()
    step, fed = run.updates.step(run.task), run.devices.feed(largest)
    program = run.devices.compile(step, state, fed)
    compiling = time.perf_counter() - began
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), dict(largest))
    seconds = []
    for _ in range(1 + TIMED):  # the first one also moves the arrays
        began = time.perf_counter()
        state, sums = program(state, fed)
        jax.block_until_ready(sums)
        seconds.append(time.perf_counter() - began)
    pace = sorted(seconds[1:])[TIMED // 2]
    share = float(np.mean(sizes)) / max(sizes)
    rows = [
        ("bytes of parameters", _bytes(_weight(params))),
        ("bytes of the optimizer", _bytes(_weight(jax.tree.leaves(like.opt_state)))),
        *([("bytes of the moving average", _bytes(_weight(average)))] if average else []),
        *_memory(program),
        ("batches", f"{_shape(largest)} at most; in the mean {share:.0%} of that"),
        ("FLOPs of such a step", f"{flops(step, like, shapes):.4g}"),
        ("compiling", f"{compiling:.1f} s"),
        ("a step", f"{1000 * pace:.4g} ms"),
        (f"{steps:,} steps", f"{clock(pace * share * steps)} to {clock(pace * steps)}"),
    ]
    table("\nwhat it takes", ("figure", "value"), rows, numbers=())
    print(
        f"compiled and timed: only the largest of the first {len(sizes)} batches, {TIMED} steps of it;"
        " evaluation, decoding and reading data are not in the time (h:mm:ss)"
    )


def _batches(run: Run, count: int) -> tuple[list[int], Batch]:
    """Returns the numbers of elements of the first batches, and the largest of these batches."""
    if not hasattr(run.batches, "shapes"):
        raise UserError("--dry-run: this config reads no data that it could train on")
    sizes: list[int] = []
    largest: Batch = {}
    for step in range(count):
        batch = run.batches(step)
        sizes.append(sum(array.size for array in batch.values()))
        if sizes[-1] == max(sizes):
            largest = batch
    return sizes, largest


def _parts(params: Any) -> Iterator[tuple[str, int]]:
    """Yields each part of a model (the first name of a path) and how many parameters it has."""
    sizes: dict[str, int] = {}
    for path, leaf in by_path(params):
        part = path.partition("/")[0]
        sizes[part] = sizes.get(part, 0) + leaf.size
    yield from sizes.items()


def _memory(program: Any) -> Iterator[tuple[str, str]]:
    """Yields what the compiled program says of its memory, on one device."""
    analysis = program.memory_analysis()
    if analysis is None:
        return
    kept = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    kept -= analysis.alias_size_in_bytes
    yield "activations and the like", f"{_bytes(analysis.temp_size_in_bytes)} on each device"
    yield "peak of the program", f"{_bytes(kept + analysis.temp_size_in_bytes)} on each device"


def _shape(batch: Batch) -> str:
    """The shapes of a batch's arrays, "source 64x32, target 64x32"."""
    return ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in batch.items())


def _size(leaves: list[Any]) -> int:
    return sum(leaf.size for leaf in leaves)


def _weight(leaves: list[Any]) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def _bytes(number: float) -> str:
    """A number of bytes, "3.7 MB"."""
    thousands = min(4, int(math.log10(max(number, 1)) // 3))
    return f"{number / 1000**thousands:.4g} {('B', 'kB', 'MB', 'GB', 'TB')[thousands]}"
