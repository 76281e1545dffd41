"""The training loop: restore or start, then per step: batch, step, log, evaluate, save. `train` is
all of it; the functions below it may be skipped at first reading.
"""

import collections
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import jax

from attnlab.records.measures import declared
from attnlab.training.journal import Follower, Journal, Shapes, shapes_of
from attnlab.training.parallel import HostBatch, Program, broadcast_from_0, largest
from attnlab.training.run import Run
from attnlab.training.session import Interrupt, Outcome, Session
from attnlab.training.sizes import program_sizes
from attnlab.training.step import Sums, TrainState

AHEAD = 32
"""Batches to come whose programs are compiled while earlier ones train."""
ASKED_EVERY = 8
"""Steps between two questions of several processes whether one of them has a signal."""


def train(run: "Run", session: Session) -> Outcome:
    """Trains a run from its newest good checkpoint, or from the start, until `training.steps`, an
    early stop, a signal, `session.until` or a divergence, and returns its `Outcome`.

    Returns:
      The outcome: "done" (also where `training.stop` has ended it), "interrupted" or "diverged" (a
        loss or gradient that is not finite; the last good checkpoint stays).

    Raises:
      UserError: no readable checkpoint, one that does not fit, a full disk.
    """
    task, devices, interrupt, until = run.task, run.devices, session.interrupt, session.until
    last = run.config.training.steps
    with closing(open_journal(run, session)) as journal, closing(Compiling(run)) as compiling:
        restored = journal.begin(run.updates.saved_like(task), compiling.first_state)
        host = broadcast_from_0(restored.replace(numbers=None))
        host = host.replace(numbers=run.updates.numbers)
        begin = int(host.step)
        if agree(None, False, journal.ended)[2]:
            return Outcome("done", begin, None, journal.ended)
        if until is not None and until <= begin < last:
            if until == 0:  # before the first step nothing has been saved
                journal.save(0, host, False)
            return suspend(interrupt, interrupt.signal, begin, None)
        state, batch = devices.place(host), run.batches(begin)
        fed, shapes = devices.feed(batch), shapes_of(batch)
        under_way = UnderWay(journal, devices.fetch, session, steps_late(run.config.training.lag))
        session.progress.update(begin)
        journal.running(begin)
        for step in range(begin + 1, last + 1):
            program = compiling.program(step, batch, shapes, journal)
            began = time.perf_counter()
            state, sums = program(state, fed)
            if step < last:  # the next batch, while the devices are at work
                batch = run.batches(step)
                fed, shapes = devices.feed(batch), shapes_of(batch)
            pauses = journal.pauses(step) or step == until
            problem = under_way.add(step, sums, began, wait=pauses)
            if not problem and not pauses and under_way.asks(step):
                problem, pauses = under_way.record(0), True
            if problem:
                return Outcome("diverged", under_way.step, under_way.first, problem)
            if not pauses:
                continue
            improved = journal.evaluates(step) and evaluate(run, session, journal, step, state)
            signal, improved, ended = agree(interrupt.signal, improved, journal.ended)
            stop = step < last and not ended and (signal is not None or step == until)
            if (stop or improved or ended or journal.saves(step)) and (
                problem := journal.save(step, devices.saved(state), improved)
            ):
                return Outcome("diverged", step, under_way.first, problem)
            if stop:
                return suspend(interrupt, signal, step, under_way.first)
            if ended:
                return Outcome("done", step, under_way.first, journal.ended)
    return Outcome("done", last, under_way.first)


def evaluate(run: "Run", session: Session, journal: Journal, step: int, state: TrainState) -> bool:
    """Scores the averaged parameters on the validation split, writes and shows the scores, passes
    them to `session.on_step` as "valid/NAME", and returns whether they are the best so far.
    """
    params = run.updates.trained.merge(run.devices.arrays(state.averaged))
    scores = run.task.evaluate(params, "valid", run.config.training.evaluate_rows)
    improved = journal.scored(step, scores)
    session.on_step(step, {f"valid/{name}": value for name, value in scores.items()})
    return improved


class Compiling:
    """The compiled steps of a run, each compiled, or loaded, by a thread of its own. `close` waits
    for the one at work.
    """

    def __init__(self, run: "Run") -> None:
        self._run, self._update = run, run.updates.step(run.task)
        self._state = run.devices.like(run.updates.state_like(run.task))
        self._thread = ThreadPoolExecutor(1, "compile")
        self._programs: dict[Shapes, Future[tuple[Program, float]]] = {}
        self._ready: dict[Shapes, Program] = {}

    def first_state(self, seed: int) -> TrainState:
        """See `Updates.first_states`; while it is drawn the first step is compiled."""
        self.look_ahead(0, 1)
        return self._run.updates.first_states(self._run.task)(seed)

    def look_ahead(self, step: int, count: int = AHEAD) -> None:
        """Starts compiling the programs for the shapes of the batches after `step`, at most `count`
        batches ahead; not on a CPU, whose cores are needed for the state and the steps.
        """
        batches = self._run.batches
        limit = 0 if on_processor() else len(getattr(batches, "shapes", [None]))
        for later in range(step, step + count):
            if len(self._programs) < limit:
                self.begin(batches(later))

    def program(self, step: int, batch: HostBatch, shapes: Shapes, journal: Journal) -> Program:
        """Returns the compiled step for a batch of these shapes; for new shapes waits for the
        compilation, records its seconds and memory in the journal, and starts compiling the
        programs for the batches after `step`.
        """
        if shapes not in self._ready:
            self._ready[shapes], seconds = self.begin(batch).result()
            peak = program_sizes(self._ready[shapes]).get("peak", "")
            journal.compiled(step, seconds, shapes, peak)
            self.look_ahead(step)
        return self._ready[shapes]

    def begin(self, batch: HostBatch) -> Future[tuple[Program, float]]:
        """Starts to compile the program for batches of such shapes, unless that has begun, and
        returns a `Future` of the pair of the program and the seconds that it took.
        """
        shapes = shapes_of(batch)
        if shapes not in self._programs:
            self._programs[shapes] = self._thread.submit(self._compile, batch)
        return self._programs[shapes]

    def _compile(self, batch: HostBatch) -> tuple[Program, float]:
        began, devices = time.perf_counter(), self._run.devices
        program = devices.compile(self._update, self._state, devices.feed(batch))
        ahead = isinstance(program, jax.stages.Compiled)  # else its first step compiles it
        return program, time.perf_counter() - began if ahead else 0.0

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(cancel_futures=True)


class UnderWay:
    """The steps that the devices may still be at work on. Their sums are fetched and recorded in
    their order, each when at most `lag` younger ones have been started.

    Args:
      journal, session: of the run.
      fetch: from sums on the devices to those on the host.
      lag: see `steps_late`.

    Attributes:
      step: the last one recorded.
      first: seconds from the start of the command to the end of the first step; None before.
    """

    def __init__(
        self, journal: Journal, fetch: Callable[[Sums], Sums], session: Session, lag: int
    ) -> None:
        """Stores the journal, the function that fetches sums from devices, the session and the lag,
        with no step in progress.
        """
        self._journal, self._fetch, self._session, self._lag = journal, fetch, session, lag
        self._waiting = collections.deque[tuple[int, Sums, float]]()
        self._ended = 0.0
        self.step = 0
        self.first: float | None = None

    def asks(self, step: int) -> bool:
        """Whether to look for a signal after a step: if one has come. Several processes do so
        together, and wait for the step: after every one, or with a lag after some.
        """
        if jax.process_count() == 1:
            return self._session.interrupt.signal is not None
        return not self._lag or step % ASKED_EVERY == 0

    def add(self, step: int, sums: Sums, began: float, wait: bool) -> str:
        """Queues a step that was started at time `began`, then fetches and records the oldest steps
        until `lag` remain, or all if `wait`; returns why the run has diverged, or "".
        """
        self._waiting.append((step, sums, began))
        return self.record(0 if wait else self._lag)

    def record(self, remaining: int) -> str:
        """Fetches the metrics of all steps under way but the last `remaining`, and writes them to
        the journal, the progress and the session; stops and returns why the run has diverged, or
        "".
        """
        while len(self._waiting) > remaining:
            self.step, sums, began = self._waiting.popleft()
            values = {name: float(value) for name, value in self._fetch(sums).items()}
            now = time.perf_counter()
            seconds, self._ended = now - max(began, self._ended), now
            self.first = self.first or now - self._session.began
            pace = {"step_seconds": seconds, "tokens_per_second": values["tokens"] / seconds}
            if problem := self._journal.stepped(self.step, values, pace):
                return problem
            self._session.progress.update(self.step, loss=values["loss"], **pace)
            self._journal.running(self.step)
            self._session.on_step(self.step, values)
        return ""


def steps_late(lag: int) -> int:
    """How many steps may be under way behind the one that is recorded: as `training.lag` says, or
    (-1) none on a processor, which computes and records with the same cores, else 2.
    """
    return lag if lag >= 0 else 0 if on_processor() else 2


def on_processor() -> bool:
    """Whether the steps run on the cores of this process."""
    return jax.default_backend() == "cpu"


def open_journal(run: "Run", session: Session, number: int = 0, label: str = "") -> Journal:
    """Opens the journal of a run, which is the run `number` of the session, with `label` before its
    notes; processes other than 0 get a `Follower`.
    """
    kind = Journal if jax.process_index() == 0 else Follower
    attempt = session.attempts[number] if session.attempts else None
    progress, measures = session.progress, declared(run.task)
    parts = run.config, run.workdir, run.updates.schedule, progress, measures, label, attempt
    return kind(
        *parts, [*run.lineage.get("before", ()), run.lineage["step"]] if run.lineage else ()
    )


def suspend(interrupt: Interrupt, signal: int | None, step: int, first: float | None) -> Outcome:
    """Returns the outcome of a run that continues later, by a signal all processes agree on."""
    interrupt.signal = signal
    return Outcome("interrupted", step, first, why_stopped(interrupt), signal)


def agree(signal: int | None, improved: bool, ended: str) -> tuple[int | None, bool, bool]:
    """Returns, equal in all processes, the `signal` that came to any of them, and whether in process
    0 the score `improved` and training has `ended` (why, or "").
    """
    number, best, ends = largest((signal or 0, int(improved), int(bool(ended))))
    return number or None, bool(best), bool(ends)


def why_stopped(interrupt: Interrupt) -> str:
    """A word on an interrupted run."""
    cause = "stopped as asked" if interrupt.signal is None else f"signal {interrupt.signal}"
    return f"{cause}; the same command goes on from here"
