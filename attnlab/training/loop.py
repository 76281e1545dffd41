"""The training loop: build, restore or start, then per step: batch, step, maybe log, evaluate,
save. `train` is all of it.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
import optax
from ml_collections import ConfigDict

from attnlab.errors import UserError
from attnlab.progress import Progress
from attnlab.records.attempts import Attempt
from attnlab.records.measures import Measure, declared
from attnlab.records.stream import Metrics, State, standing
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.interrupt import Interrupt
from attnlab.training.optimizers import build_optimizer
from attnlab.training.parallel import Backend, largest, of_first
from attnlab.training.step import Batch, Sums, TrainState, first_state, make_step, seed_array

Batches = Callable[[int], dict[str, np.ndarray]]
Shapes = tuple[tuple[int, ...], ...]


class Task(Protocol):
    """What is learned, as the loop sees it."""

    @property
    def measures(self) -> Mapping[str, Measure | str]:
        """Which way a score is better, see `attnlab.records.measures`; at least those that
        `evaluate` gives.
        """

    def init(self, key: jax.Array) -> Any:
        """Fresh float32 parameters."""

    def loss(
        self, params: Any, batch: Batch, key: jax.Array, carried: Any = None
    ) -> tuple[jax.Array, Sums]:
        """See `step.Loss`."""

    def carried(self) -> Any:
        """What the loss carries from step to step, before the first; None for nothing."""

    def follow(self, carried: Any, tracked: Any) -> Any:
        """What it carries on, given the sums that it tracked in a batch."""

    def weight(self, batch: Batch) -> jax.Array:
        """What the summed loss of a batch is divided by."""

    def evaluate(self, params: Any, split: str) -> dict[str, float]:
        """Deterministic scores on a split, among them "loss"."""


@runtime_checkable
class Remembering(Protocol):
    """A task whose loss may go on in a batch where it stopped in the one before."""

    def remembered(self) -> Any:
        """What its model remembers of the rows of the global batch before the first step, see
        `step.TrainState`; None for nothing.
        """


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How training ended: the state reached, the step, the seconds to the first step and a word on
    the why.
    """

    state: State
    step: int
    seconds_to_first_step: float | None = None
    message: str = ""


class Journal:
    """One run's files: what is due at a step, and what is then written. `train` keeps one,
    `stacked.train` several.

    The order within a step is `stepped`, `scored`, `save`: a checkpoint of step s is written after
    every record of step s, so that a resumed run drops the records after s and goes on exactly as
    the uninterrupted one did.

    Args:
      config: the nodes seed, training and checkpoint are read here.
      workdir: an existing directory that this process has locked.
      schedule: of the learning rate, for the records.
      progress: where a person looks.
      measures: see `Task`; which way `checkpoint.by` is better is read here.
      label: what its notes begin with.
      attempt: this process's at the run; one of its own unless given.

    Attributes:
      last: the last step of the run.
      best: the `standing` of the best validation so far.
      attempt: its `events.jsonl`.
      metrics: its records.
    """

    def __init__(
        self,
        config: ConfigDict,
        workdir: Path,
        schedule: Callable[[int], Any],
        progress: Progress,
        measures: Mapping[str, Measure],
        label: str = "",
        attempt: Attempt | None = None,
    ) -> None:
        self.config, self._schedule, self._progress, self._label = config, schedule, progress, label
        self._by, self._way = config.checkpoint.by, measures[config.checkpoint.by].better
        self.last = config.training.steps
        self.best = (math.inf, math.inf)
        self.attempt = attempt or Attempt(workdir)
        self._checkpoints = Checkpoints(
            workdir / "checkpoints", config.checkpoint.keep, warn=progress.warn
        )
        self.metrics = Metrics(workdir)

    def begin(self, like: TrainState, fresh: Callable[[int], TrainState]) -> TrainState:
        """The state to begin with, on the host: the newest good checkpoint's, else a fresh one;
        later records are dropped.

        Args:
          like: see `saved_like`.
          fresh: see `first_states`.

        Raises:
          UserError: no checkpoint can be used, or the records up to it are not those that were
            written.
        """
        restored = self._checkpoints.restore(like)
        if restored is None:
            host = fresh(self.config.seed)
        else:
            host, self.best = (
                restored.tree.replace(seed=seed_array(self.config.seed)),
                tuple(restored.meta["best"]),
            )
        self._checkpoints.check_space(sum(leaf.nbytes for leaf in jax.tree.leaves(host)))
        self.metrics.rewind(
            int(host.step) or None, restored.meta.get("records") if restored else None
        )
        return host

    def running(self, step: int) -> None:
        """Say how far the run is; nothing of one that was at its end before."""
        if step < self.last or self.attempt.began is not None:
            self.attempt.at(step)

    def compiled(self, step: int, seconds: float, shapes: Shapes = ()) -> None:
        """Write down how long the program of a step took to compile, and tell it of batches of
        these shapes, if any are given.
        """
        self.metrics.time(step, {"compile_seconds": seconds})
        self._tell_compiled(seconds, shapes)

    def stepped(self, step: int, values: Mapping[str, float], pace: Mapping[str, float]) -> str:
        """Write the record of a step if one is due. Returns why the run has diverged, "" if it
        has not.
        """
        if wrong := _not_finite(step, values):
            return wrong
        if self._due(step, self.config.training.log_every):
            self.metrics.write(
                step, "train", {**values, "learning_rate": float(self._schedule(step - 1))}
            )
            self.metrics.time(step, pace)
        return ""

    def evaluates(self, step: int) -> bool:
        """Whether an evaluation is due."""
        return self._due(step, self.config.training.evaluate_every)

    def scored(self, step: int, scores: Mapping[str, float]) -> bool:
        """Write the record of an evaluation. Returns whether it is the best so far; of equal ones
        that of the lower loss is.
        """
        self.metrics.write(step, "valid", scores)
        self._progress.note(
            f"{self._label}step {step}: valid "
            + ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        )
        reached = standing(scores, self._by, self._way)
        improved = reached < self.best
        self.best = reached if improved else self.best
        return improved

    def saves(self, step: int) -> bool:
        """Whether a checkpoint is due."""
        return self._due(step, self.config.checkpoint.every)

    def save(self, step: int, host: TrainState, best: bool) -> str:
        """Start saving the state. Returns why the run has diverged, "" if it has not."""
        self.metrics.sync()
        if wrong := _not_finite_params(step, host):
            return wrong
        self._checkpoints.save(
            step,
            host.replace(seed=None),
            {"best": self.best, "records": self.metrics.extent},
            best=best,
        )
        return ""

    def close(self) -> None:
        """Finish all writing."""
        try:
            self.metrics.close()
        finally:
            self._checkpoints.close()

    def _tell_compiled(self, seconds: float, shapes: Shapes) -> None:
        if shapes:
            self._progress.compiled(f"batches of {spoken(shapes)}", seconds)

    def _due(self, step: int, every: int) -> bool:
        """Whether something that happens every so many steps (0: never) and at the last one
        happens now.
        """
        return step == self.last or bool(every and step % every == 0)


class Follower(Journal):
    """The journal of all of several processes but the first: the same is due at the same steps, and
    nothing is read or written.
    """

    def begin(self, like: TrainState, fresh: Callable[[int], TrainState]) -> TrainState:
        """Room for the state of the first process."""
        return jax.tree.map(
            lambda leaf: np.zeros(leaf.shape, leaf.dtype),
            like.replace(seed=seed_array(self.config.seed)),
        )

    def running(self, step: int) -> None:
        """Nothing."""

    def compiled(self, step: int, seconds: float, shapes: Shapes = ()) -> None:
        """Tell it; write nothing."""
        self._tell_compiled(seconds, shapes)

    def stepped(self, step: int, values: Mapping[str, float], pace: Mapping[str, float]) -> str:
        """Why the run has diverged, "" if it has not."""
        return _not_finite(step, values)

    def evaluates(self, step: int) -> bool:
        """The first process evaluates."""
        return False

    def save(self, step: int, host: TrainState, best: bool) -> str:
        """Why the run has diverged, "" if it has not."""
        return _not_finite_params(step, host)

    def close(self) -> None:
        """Nothing."""


def _not_finite(step: int, values: Mapping[str, float]) -> str:
    """Why a run has diverged by what a step gave, "" if it has not."""
    finite = math.isfinite(values["loss"] + values["grad_norm"])
    return (
        ""
        if finite
        else f"loss {values['loss']}, gradient norm {values['grad_norm']} at step {step}"
    )


def _not_finite_params(step: int, host: TrainState) -> str:
    """Why a run has diverged by an update too large for a finite gradient, "" if it has not."""
    finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(host.params))
    return "" if finite else f"parameters that are not finite after step {step}"


def train(
    config: ConfigDict,
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
      until: save and leave after this step, as at a signal; at once where the run is as far as
        that.
      attempt: this process's at the run, told how far it is; its end is for the caller to record.

    Returns:
      The outcome: "done", "interrupted" or "diverged" (a loss or gradient that is not finite; the
        last good checkpoint stays).

    Raises:
      UserError: no readable checkpoint, one that does not fit, a full disk.
    """
    last, how = (
        config.training.steps,
        {name: config.training[name] for name in ("accumulate", "ema", "compute")},
    )
    optimizer, schedule = build_optimizer(
        config.optimizer, config.schedule, steps=last, clip=config.training.clip
    )
    step_function = make_step(task.loss, task.weight, optimizer, follow=task.follow, **how)
    kind = Journal if jax.process_index() == 0 else Follower
    with closing(
        kind(config, workdir, schedule, progress, declared(task), attempt=attempt)
    ) as journal:
        host = of_first(journal.begin(saved_like(config, task), first_states(config, task)))
        begin, first = int(host.step), None
        state, programs, batch = place.place(host), {}, batches(begin)
        if until is not None and until <= begin < last:
            return stopped(interrupt, interrupt.signal, begin, None)
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
                step, task.evaluate(place.one(state.averaged), "valid")
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
    """The end of a run that is to go on later, as all processes have agreed on it."""
    interrupt.signal = signal
    return Outcome("interrupted", step, first, why_stopped(interrupt))


def agreed(signal: int | None, improved: bool) -> tuple[int | None, bool]:
    """What holds in all processes if in any: a signal that came to one, an evaluation that only the
    first one makes.
    """
    number, best = largest((signal or 0, int(improved)))
    return number or None, bool(best)


def shapes_of(batch: Mapping[str, Any]) -> Shapes:
    """The shapes of all arrays of a batch, which is what a program is compiled for."""
    return tuple(array.shape for array in batch.values())


def spoken(shapes: Shapes) -> str:
    """Shapes in words, each once, those of mere columns left out: "20x35", "64x16 and 64x8"."""
    return " and ".join(
        dict.fromkeys("x".join(map(str, shape)) for shape in shapes if len(shape) > 1)
    )


def why_stopped(interrupt: Interrupt) -> str:
    """A word on an interrupted run."""
    cause = "stopped as asked" if interrupt.signal is None else f"signal {interrupt.signal}"
    return f"{cause}; the same command goes on from here"


def first_states(config: ConfigDict, task: Task) -> Callable[[int], TrainState]:
    """A function from a seed to the state before the first step, on the host; one program, whatever
    the seed.
    """
    optimizer, _ = build_optimizer(
        config.optimizer, config.schedule, steps=config.training.steps, clip=config.training.clip
    )
    start = jax.jit(lambda key: _first_state(config, task, optimizer, key))
    return lambda seed: jax.device_get(start(jax.random.key(seed))).replace(seed=seed_array(seed))


def state_like(config: ConfigDict, task: Task) -> TrainState:
    """Shapes and dtypes of the training state, without computing anything."""
    optimizer, _ = build_optimizer(
        config.optimizer, config.schedule, steps=config.training.steps, clip=config.training.clip
    )
    return jax.eval_shape(lambda: _first_state(config, task, optimizer, jax.random.key(0)))


def remembered(task: Task) -> Any:
    """What the model of a task remembers of the rows before the first step; None for most tasks."""
    return task.remembered() if isinstance(task, Remembering) else None


def _first_state(
    config: ConfigDict, task: Task, optimizer: optax.GradientTransformation, key: jax.Array
) -> TrainState:
    return first_state(
        task.init(key), optimizer, config.training.ema, task.carried(), remembered=remembered(task)
    )


def saved_like(config: ConfigDict, task: Task) -> TrainState:
    """What a checkpoint of this config must hold: all of the state but the seed."""
    return state_like(config, task).replace(seed=None)


def best_params(config: ConfigDict, task: Task, workdir: Path) -> tuple[Any, int]:
    """The parameters to use of a trained workdir (its best step on validation, else its newest),
    and that step; reads only.

    Raises:
      UserError: there is no checkpoint, or it is damaged or does not fit.
    """
    checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep, read_only=True)
    restored = checkpoints.restore(
        saved_like(config, task), "best" if checkpoints.best is not None else None
    )
    checkpoints.close()
    if restored is None:
        raise UserError(
            f"no checkpoint in {workdir / 'checkpoints'}: train there first, or name another"
            " --workdir"
        )
    return restored.tree.averaged, restored.step
