"""The files of a run during training (records, checkpoints, events), and when they are written; and
when a run ends before its last step (`training.stop`): a measure of validation has not improved for
some evaluations. That is a function of the validation records alone, so a resumed run ends where an
uninterrupted one does.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from attnlab.progress import Progress
from attnlab.records.attempts import Attempt
from attnlab.records.measures import Measure
from attnlab.records.stream import Metrics, rank_key, read_records
from attnlab.training import programs
from attnlab.training.checkpoints import Checkpoints, Followed
from attnlab.training.mesh import on_host, spans
from attnlab.training.settings import Stop
from attnlab.training.step import TrainState, seed_array

if TYPE_CHECKING:
    from attnlab.tasks.schemas import Settings

Shapes = tuple[tuple[int, ...], ...]


class Journal:
    """The files of one run, and when they are written. `loop.train` has one, `stacked.train`
    several.

    The order within a step is `stepped`, `scored`, `save`: a checkpoint of step s is written after
    every record of step s, so that a resumed run drops the records after s and continues exactly as
    an uninterrupted run.

    Args:
      config: the nodes seed, training and checkpoint are read here.
      workdir: an existing directory that this process has locked.
      schedule: of the learning rate, for the records.
      progress: the progress display.
      measures: see `protocol.Task`; they give the direction of `checkpoint.by`.
      label: the prefix of its notes.
      attempt: this process's at the run; one of its own unless given.
      after: the steps at which it, and the runs before it, have gone on from another run.

    Attributes:
      last: the last step of the run.
      ended: why it ends before, by `training.stop`; "" while it does not.
      best: the `rank_key` of the best validation so far.
      attempt: its `events.jsonl`.
      metrics: its records.
    """

    def __init__(
        self,
        config: "Settings",
        workdir: Path,
        schedule: Callable[[int], float | jax.Array],
        progress: Progress,
        measures: Mapping[str, Measure],
        label: str = "",
        attempt: Attempt | None = None,
        after: Collection[int] = (),
    ) -> None:
        """Stores config, schedule, progress and the measure that ranks checkpoints, creates an
        `Attempt` unless one is given, and the run's `Metrics` and `Checkpoints` in `workdir`;
        writes nothing yet.
        """
        self.config, self._schedule, self._progress, self._label = config, schedule, progress, label
        self._by, self._better = config.checkpoint.by, measures[config.checkpoint.by].better
        self.last = config.training.steps
        self.best = (math.inf, math.inf)
        self.ended, self._after = "", after
        self._measures, self._watched = measures, list[tuple[int, float]]()
        self.attempt = attempt or Attempt(workdir)
        self._open(workdir)

    def _open(self, workdir: Path) -> None:
        """Open the checkpoints and the records."""
        keep, warn = self.config.checkpoint.keep, self._progress.warn
        self._checkpoints = Checkpoints(workdir / "checkpoints", keep, warn=warn)
        self.metrics: Metrics | _Unwritten = Metrics(workdir)

    def begin(self, like: TrainState, fresh: Callable[[int], TrainState]) -> TrainState:
        """Returns the first state, on the host or placed as in `like`, from the newest good
        checkpoint, else `fresh(seed)`; drops metrics recorded after it, and checks the disk space.

        Args:
          like: see `Updates.saved_like`.
          fresh: see `Updates.first_states`.

        Raises:
          UserError: no checkpoint can be used, or the records up to it have changed.
        """
        restored = self._checkpoints.restore(like)
        if restored is None:
            state = fresh(self.config.seed)
        else:
            state = restored.tree.replace(seed=seed_array(self.config.seed))
            score, loss = restored.meta["best"]
            self.best = (score, loss)
            if restored.meta.get("restarts") and like.remembered is not None:
                state = state.replace(remembered=fresh(self.config.seed).remembered)
        self._checkpoints.check_space(sum(leaf.nbytes for leaf in jax.tree.leaves(state)))
        records = restored.meta.get("records") if restored else None
        self.metrics.rewind(int(state.step) or None, records)
        if isinstance(self.metrics, Metrics) and self.config.training.stop.measure:
            for record in read_records(self.metrics.path):
                if record["split"] == "valid":
                    self._watch(record["step"], record)
        return state

    def running(self, step: int) -> None:
        """Report the step of the run, unless it had already ended."""
        if step < self.last or self.attempt.began is not None:
            self.attempt.at(step)

    def compiled(self, step: int, seconds: float, shapes: Shapes = (), peak: str = "") -> None:
        """Records how long the program of a step took to compile, and reports the shapes of its
        batches, if given, with its peak in memory.
        """
        self.metrics.time(step, {"compile_seconds": seconds, **programs.take()})
        if shapes:
            self._progress.compiled(f"batches of {format_shapes(shapes)}", seconds, peak)

    def stepped(self, step: int, values: Mapping[str, float], pace: Mapping[str, float]) -> str:
        """Checks that "loss" and "grad_norm" of a step are finite, and writes its metrics, with the
        learning rate, and its pace if a record is due; returns why the run has diverged, or "".
        """
        if problem := _not_finite(step, values):
            return problem
        if self._due(step, self.config.training.log_every):
            self.metrics.write(
                step, "train", {**values, "learning_rate": float(self._schedule(step - 1))}
            )
            self.metrics.time(step, {**pace, **programs.take()})
        return ""

    def evaluates(self, step: int) -> bool:
        """Whether an evaluation is due."""
        return self._due(step, self.config.training.evaluate_every)

    def pauses(self, step: int) -> bool:
        """Whether an evaluation or a checkpoint is due, in whatever process."""
        return self._due(step, self.config.training.evaluate_every) or self.saves(step)

    def scored(self, step: int, scores: Mapping[str, float]) -> bool:
        """Writes and shows the scores of an evaluation; returns whether they are the best so far by
        the measure of `checkpoint.by`, then by the lower loss.
        """
        self.metrics.write(step, "valid", scores)
        self._watch(step, scores)
        if counts := programs.take():
            self.metrics.time(step, counts)
        self._progress.note(
            f"{self._label}step {step}: valid "
            + ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
        )
        reached = rank_key(scores, self._by, self._better)
        improved = reached < self.best
        self.best = reached if improved else self.best
        return improved

    def _watch(self, step: int, scores: Mapping[str, float]) -> None:
        """Adds the scores of a validation at `step` to those that `training.stop` watches, and sets
        `ended` to the reason (text) if training ends with it; without `stop.measure` does nothing.
        """
        stop = self.config.training.stop
        if stop.measure and not self.ended:
            self._watched.append((step, scores[stop.measure]))
            better = self._measures[stop.measure].better
            self.ended = why_ended(stop, better, self._watched, self._after)

    def saves(self, step: int) -> bool:
        """Whether a checkpoint is due."""
        return self._due(step, self.config.checkpoint.every)

    def save(self, step: int, state: TrainState, best: bool) -> str:
        """Checks that the parameters are finite, and starts saving the state as a checkpoint;
        returns why the run has diverged (nothing is then saved), or "".
        """
        self.metrics.sync()
        if problem := _not_finite_params(step, state):
            return problem
        meta = {"best": self.best, "records": self.metrics.extent}
        self._checkpoints.save(step, state.replace(seed=None, numbers=None), meta, best=best)
        return ""

    def close(self) -> None:
        """Finish all writing."""
        try:
            self.metrics.close()
        finally:
            self._checkpoints.close()

    def _due(self, step: int, interval: int) -> bool:
        """Whether something that happens every `interval` steps (0: never) and at the last one
        happens at `step`.
        """
        return step == self.last or bool(interval and step % interval == 0)


class Follower(Journal):
    """The journal of all of several processes but the first: the same is due at the same steps, and
    no record is read or written. Where the state lies over all processes, they evaluate, read and
    save with the first.
    """

    _together = False

    def _open(self, workdir: Path) -> None:
        self._checkpoints = Followed(workdir / "checkpoints", 1)
        self.metrics = _Unwritten()

    def begin(self, like: TrainState, fresh: Callable[[int], TrainState]) -> TrainState:
        """Returns the state as `Journal.begin` does if it is divided over all processes; else zeros
        in the shapes of `like`, to receive that of process 0.
        """
        self._together = spans(like)
        if self._together:
            return super().begin(like, fresh)
        return jax.tree.map(
            lambda leaf: np.zeros(leaf.shape, leaf.dtype),
            like.replace(seed=seed_array(self.config.seed)),
        )

    def running(self, step: int) -> None:
        """Nothing."""

    def evaluates(self, step: int) -> bool:
        """The first process evaluates, alone if it can."""
        return self._together and super().evaluates(step)

    def save(self, step: int, state: TrainState, best: bool) -> str:
        """Checks that the parameters are finite, and saves with the first process where the state
        lies over all. Returns why the run has diverged, "" if it has not.
        """
        return (
            super().save(step, state, best) if self._together else _not_finite_params(step, state)
        )


class _Unwritten:
    """The records that `Metrics` would write."""

    extent: Mapping[str, object] = {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


def _not_finite(step: int, values: Mapping[str, float]) -> str:
    """Why a run has diverged by what a step gave, "" if it has not."""
    if math.isfinite(values["loss"] + values["grad_norm"]):
        return ""
    return f"loss {values['loss']}, gradient norm {values['grad_norm']} at step {step}"


def _not_finite_params(step: int, state: TrainState) -> str:
    """Why a run has diverged by an update too large for a finite gradient, "" if it has not."""
    finite = all(on_host(_all_finite, leaf) for leaf in jax.tree.leaves(state.params))
    return "" if finite else f"parameters that are not finite after step {step}"


def _all_finite(array: jax.Array) -> jax.Array:
    return (abs(array) < math.inf).all()


def shapes_of(batch: Mapping[str, jax.Array | np.ndarray]) -> Shapes:
    """The shapes of all arrays of a batch, which is what a program is compiled for."""
    return tuple(array.shape for array in batch.values())


def format_shapes(shapes: Shapes) -> str:
    """Writes shapes for a person, each once, mere columns left out: "20x35", "64x16 and 64x8"."""
    return " and ".join(
        dict.fromkeys("x".join(map(str, shape)) for shape in shapes if len(shape) > 1)
    )


def why_ended(
    stop: Stop, better: str, scores: Sequence[tuple[int, float]], after: Collection[int] = ()
) -> str:
    """Returns the reason, as text, why training ends early, or "" while it goes on: the values in
    `scores` (step, value) have not improved by more than `stop.min_delta` for `stop.patience`
    evaluations, and the last step in `after` is passed.

    Args:
      stop: of the config.
      better: which way its measure is better, "min" or "max".
      scores: step and value of each evaluation; NaN is no improvement.
      after: the steps at which a run has gone on from another, up to the last of which nothing
        ends; if training would have ended by one of them, patience begins anew behind it, else the
        evaluations before it count as in one long run.
    """
    best, best_step, waited, sign = math.inf, 0, 0, 1 if better == "min" else -1
    expired, previous, begin = False, 0, max(after, default=0)
    for step, value in scores:
        if expired and any(previous <= parent < step for parent in after):
            waited, expired = 0, False
        previous = step
        if sign * value < best - stop.min_delta:
            best, best_step, waited = sign * value, step, 0
            continue
        waited += 1
        expired = expired or waited == stop.patience
        if expired and step > begin:
            by = f" by more than {stop.min_delta:g}" if stop.min_delta else ""
            return (
                f"stopped early at step {step}: {stop.measure} has not improved on {sign * best:.6g}"
                f" of step {best_step}{by} in {stop.patience} evaluations"
            )
    return ""
