"""The training loop: build, restore or start, then per step: batch, step, maybe log, evaluate,
save. `train` is all of it.
"""

from __future__ import annotations

import dataclasses
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import jax

from attnlab.progress import Progress
from attnlab.records.attempts import Attempt
from attnlab.records.measures import declared
from attnlab.records.stream import State
from attnlab.training.interrupt import Interrupt
from attnlab.training.journal import Follower, Journal, Shapes, shapes_of
from attnlab.training.optimizers import build_optimizer
from attnlab.training.parallel import Backend, Program, largest, of_first
from attnlab.training.protocol import Batches, Task
from attnlab.training.states import first_states, saved_like
from attnlab.training.step import make_step
from attnlab.training.trained import Trained

if TYPE_CHECKING:
    from attnlab.tasks.schemas import Settings


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How training ended: the final state, the step, the seconds to the first step and a text on
    why it ended.
    """

    state: State
    step: int
    seconds_to_first_step: float | None = None
    message: str = ""


def train(
    config: Settings,
    task: Task,
    batches: Batches,
    workdir: Path,
    place: Backend,
    progress: Progress,
    interrupt: Interrupt,
    began: float,
    until: int | None = None,
    attempt: Attempt | None = None,
) -> Outcome:
    """Train until `config.training.steps`, from the newest good checkpoint in `workdir` if there is
    one.

    Args:
      config: see `configs/`; the nodes seed, optimizer, schedule, training and checkpoint are read
        here.
      task: model, data and loss.
      batches: this process's batch of each step, counted from 0.
      workdir: an existing directory that this process has locked.
      place: the parallel backend.
      progress: where a person looks.
      interrupt: entered; a remembered signal makes the loop save and leave.
      began: `time.perf_counter()` at the start of the command, for the time to the first step.
      until: save and leave after this step, as after a signal; at once if the run is there already.
        0: save the state before the first step.
      attempt: the attempt of this process; it gets the steps, and the caller records its end.

    Returns:
      The outcome: "done", "interrupted" or "diverged" (a loss or gradient that is not finite; the
        last good checkpoint stays).

    Raises:
      UserError: no readable checkpoint, one that does not fit, a full disk.
    """
    settings, last = config.training, config.training.steps
    optimizer, schedule = build_optimizer(
        config.optimizer, config.schedule, steps=last, clip=config.training.clip
    )
    which = Trained.of(config)
    step_function = make_step(
        task.loss,
        task.weight,
        optimizer,
        accumulate=settings.accumulate,
        ema=settings.ema,
        compute=settings.compute,
        follow=task.follow,
        which=which,
    )
    kind = Journal if jax.process_index() == 0 else Follower
    with closing(
        kind(config, workdir, schedule, progress, declared(task), attempt=attempt)
    ) as journal:
        host = of_first(journal.begin(saved_like(config, task), first_states(config, task)))
        begin, first = int(host.step), None
        programs: dict[Shapes, Program] = {}
        if until is not None and until <= begin < last:
            if until == 0:  # before the first step nothing has been saved
                journal.save(0, host, False)
            return stopped(interrupt, interrupt.signal, begin, None)
        state, batch = place.place(host), batches(begin)
        progress.update(begin)
        journal.running(begin)
        for step in range(begin + 1, last + 1):
            fed, shapes = place.feed(batch), shapes_of(batch)
            if shapes not in programs:
                clock = time.perf_counter()
                programs[shapes] = place.compile(step_function, state, fed)
                journal.compiled(step, time.perf_counter() - clock, shapes)
            clock = time.perf_counter()
            state, sums = programs[shapes](state, fed)
            batch = batches(step)  # the next one, while the devices are at work
            values = {name: float(value) for name, value in place.fetch(sums).items()}
            seconds, first = time.perf_counter() - clock, first or time.perf_counter() - began
            pace = {"step_seconds": seconds, "tokens_per_second": values["tokens"] / seconds}
            if wrong := journal.stepped(step, values, pace):
                return Outcome("diverged", step, first, wrong)
            progress.update(step, loss=values["loss"], **pace)
            improved = journal.evaluates(step) and journal.scored(
                step, task.evaluate(which.seen(place.one(state.averaged)), "valid")
            )
            signal, improved = agreed(interrupt.signal, improved)
            stop = step < last and (signal is not None or step == until)
            if (stop or improved or journal.saves(step)) and (
                wrong := journal.save(step, place.fetch(state), improved)
            ):
                return Outcome("diverged", step, first, wrong)
            if stop:
                return stopped(interrupt, signal, step, first)
            journal.running(step)
    return Outcome("done", last, first)


def stopped(interrupt: Interrupt, signal: int | None, step: int, first: float | None) -> Outcome:
    """The end of a run that continues later, agreed by all processes."""
    interrupt.signal = signal
    return Outcome("interrupted", step, first, why_stopped(interrupt))


def agreed(signal: int | None, improved: bool) -> tuple[int | None, bool]:
    """The values shared by all processes: a signal to any of them, and the result of the evaluation
    of process 0.
    """
    number, best = largest((signal or 0, int(improved)))
    return number or None, bool(best)


def why_stopped(interrupt: Interrupt) -> str:
    """A word on an interrupted run."""
    cause = "stopped as asked" if interrupt.signal is None else f"signal {interrupt.signal}"
    return f"{cause}; the same command goes on from here"
