"""`train --dry-run`: what a run will take, before it trains: parameters, bytes, FLOPs, batches, time.

Nothing is written and no parameter is drawn: a step is compiled for the largest batches, and timed
on a state of zeros.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np

from attnlab.analysis.work import flops
from attnlab.errors import UserError
from attnlab.pages.tables import milliseconds, scaled
from attnlab.progress import clock, table
from attnlab.records import provenance
from attnlab.training import sizes
from attnlab.training.journal import format_shapes, shapes_of

if TYPE_CHECKING:
    from attnlab.training.parallel import Program
    from attnlab.training.run import Run
    from attnlab.training.step import TrainState

SEEN = 256  # batches, of which the largest is compiled
TIMED = 3  # steps
Batch = Mapping[str, np.ndarray]


def print_outlook(run: "Run") -> None:
    """Compiles the step of a run for its largest batch, times three steps of it, and prints tables
    of parameters, memory, FLOPs and time of the training; trains nothing; raises `UserError` if
    there are several processes.

    Raises:
      UserError: several processes.
    """
    if jax.process_count() > 1:
        raise UserError("--dry-run is for one process; start it once, without the other processes")
    begun = run.lineage["step"] if run.lineage else 0
    begin = max(begun, provenance.saved_step(run.workdir) or 0)
    steps = max(run.config.training.steps - begin, 0)
    seen = min(SEEN, max(steps, 1))
    share, largest = _batches(run, begin, seen)
    like = run.updates.state_like(run.task)
    parts = [(name, f"{sizes.count(part):,}") for name, part in like.params.items()]
    table("parameters", ("part", "number"), [*parts, ("all", f"{sizes.count(like.params):,}")])
    pretrained = [] if run.task.beginning is None else run.task.beginning.lines()
    if notes := [*pretrained, *run.updates.notes(run.task)]:
        print("", *notes, sep="\n")
    began = time.perf_counter()
    step = run.updates.step(run.task)
    program = run.devices.compile(step, run.devices.like(like), run.devices.feed(largest))
    compiling = time.perf_counter() - began
    pace = _seconds(run, program, like, largest)
    rows = [
        *sizes.state_sizes(like).items(),
        *((f"{name}, on each device", size) for name, size in sizes.program_sizes(program).items()),
        ("largest batch", format_shapes(shapes_of(largest))),
        ("mean batch", f"{share:.0%} of that"),
        ("FLOPs of a step", scaled(flops(step, like, dict(largest)))),
        ("compiling", f"{compiling:.1f} s"),
        ("ms of a step", milliseconds(pace)),
        (f"{steps:,} steps", f"{clock(pace * share * steps)} to {clock(pace * steps)}"),
    ]
    table("\nwhat it takes", ("figure", "value"), rows, numbers=())
    of = f" after step {begin}" if begin else ""
    print(
        f"compiled and timed: only the largest of the first {seen} batches{of}, {TIMED} steps of it;\n"
        "evaluation, decoding and reading data are not in the time (h:mm:ss)"
    )


def _batches(run: "Run", begin: int, count: int) -> tuple[float, Batch]:
    """Returns the mean size of the `count` batches after step `begin`, as a share of the size of
    the largest, and the largest batch itself (name to array).
    """
    numbers: list[int] = []
    largest: Batch = {}
    for step in range(begin, begin + count):
        batch = run.batches(step)
        numbers.append(sizes.count(dict(batch)))
        if numbers[-1] == max(numbers):
            largest = batch
    return float(np.mean(numbers)) / max(numbers), largest


def _seconds(run: "Run", program: "Program", like: "TrainState", batch: Batch) -> float:
    """Returns the median seconds of three calls of a compiled step on `batch` and a state of zeros
    with the shapes of `like`, after a first call that is not counted.
    """
    zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), like)
    state = run.devices.place(zeros.replace(seed=like.seed, numbers=like.numbers))
    seconds = []
    for _ in range(1 + TIMED):
        began = time.perf_counter()
        state, sums = program(state, run.devices.feed(batch))
        jax.block_until_ready(sums)
        seconds.append(time.perf_counter() - began)
    return sorted(seconds[1:])[TIMED // 2]
