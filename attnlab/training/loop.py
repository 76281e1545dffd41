"""The training loop: restore or start, then per step: batch, step, log, evaluate, save. `train` is
all of it; the functions below it may be skipped at first reading.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import jax

from attnlab.records.measures import declared
from attnlab.training.interrupt import Interrupt
from attnlab.training.journal import Follower, Journal, Shapes, shapes_of
from attnlab.training.parallel import Program, broadcast_from_0, largest
from attnlab.training.session import Outcome, Session

if TYPE_CHECKING:
    from attnlab.training.run import Run


def train(run: Run, session: Session) -> Outcome:
    """Train until `config.training.steps`, from the newest good checkpoint of the run if there is
    one.

    Returns:
      The outcome: "done", "interrupted" or "diverged" (a loss or gradient that is not finite; the
        last good checkpoint stays).

    Raises:
      UserError: no readable checkpoint, one that does not fit, a full disk.
    """
    task, devices, progress, interrupt = run.task, run.devices, session.progress, session.interrupt
    last, until = run.config.training.steps, session.until
    with closing(open_journal(run, session)) as journal:
        restored = journal.begin(run.updates.saved_like(task), run.updates.first_states(task))
        host = broadcast_from_0(restored)
        begin, first = int(host.step), None
        if until is not None and until <= begin < last:
            if until == 0:  # before the first step nothing has been saved
                journal.save(0, host, False)
            return stopped(interrupt, interrupt.signal, begin, None)
        state, batch = devices.place(host), run.batches(begin)
        programs: dict[Shapes, Program] = {}
        update = run.updates.step(task, layout=devices.layout)
        progress.update(begin)
        journal.running(begin)
        for step in range(begin + 1, last + 1):
            fed, shapes = devices.feed(batch), shapes_of(batch)
            if shapes not in programs:
                clock = time.perf_counter()
                programs[shapes] = devices.compile(update, state, fed)
                journal.compiled(step, time.perf_counter() - clock, shapes)
            clock = time.perf_counter()
            state, sums = programs[shapes](state, fed)
            batch = run.batches(step)  # the next one, while the devices are at work
            values = {name: float(value) for name, value in devices.fetch(sums).items()}
            seconds = time.perf_counter() - clock
            first = first or time.perf_counter() - session.began
            pace = {"step_seconds": seconds, "tokens_per_second": values["tokens"] / seconds}
            if wrong := journal.stepped(step, values, pace):
                return Outcome("diverged", step, first, wrong)
            progress.update(step, loss=values["loss"], **pace)
            improved = journal.evaluates(step) and journal.scored(
                step, task.evaluate(run.updates.trained.seen(devices.one(state.averaged)), "valid")
            )
            signal, improved = agreed(interrupt.signal, improved)
            stop = step < last and (signal is not None or step == until)
            if (stop or improved or journal.saves(step)) and (
                wrong := journal.save(step, devices.fetch(state), improved)
            ):
                return Outcome("diverged", step, first, wrong)
            if stop:
                return stopped(interrupt, signal, step, first)
            journal.running(step)
    return Outcome("done", last, first)


def open_journal(run: Run, session: Session, number: int = 0, label: str = "") -> Journal:
    """The files of one of the runs of a session; of all processes but the first, none."""
    kind = Journal if jax.process_index() == 0 else Follower
    attempt = session.attempts[number] if session.attempts else None
    return kind(
        run.config,
        run.workdir,
        run.updates.schedule,
        session.progress,
        declared(run.task),
        label,
        attempt,
    )


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
