"""The training loop: build, restore or start, then per step: batch, step, maybe log, evaluate, save. One function, no callbacks."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np
from ml_collections import ConfigDict

from attnlab.errors import UserError
from attnlab.progress import Progress
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.interrupt import Interrupt
from attnlab.training.optimizers import build_optimizer
from attnlab.training.parallel import Backend
from attnlab.training.records import Metrics, State, Status
from attnlab.training.step import Batch, Sums, TrainState, first_state, make_step

Batches = Callable[[int], dict[str, np.ndarray]]


class Task(Protocol):
    """What is learned, as the loop sees it."""

    def init(self, key: jax.Array) -> Any:
        """Fresh float32 parameters."""

    def loss(self, params: Any, batch: Batch, key: jax.Array, carried: Any = None) -> tuple[jax.Array, Sums]:
        """See `step.Loss`."""

    def carried(self) -> Any:
        """What the loss carries from step to step, before the first; None for nothing."""

    def follow(self, carried: Any, tracked: Any) -> Any:
        """What it carries on, given the sums that it tracked in a batch."""

    def weight(self, batch: Batch) -> jax.Array:
        """What the summed loss of a batch is divided by."""

    def evaluate(self, params: Any, split: str) -> dict[str, float]:
        """Deterministic scores on a split, among them "loss"."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How training ended: the state reached, the step, the seconds to the first step and a word on the why."""

    state: State
    step: int
    seconds_to_first_step: float | None = None
    message: str = ""


def train(
    config: ConfigDict, task: Task, batches: Batches, workdir: Path, place: Backend, progress: Progress, interrupt: Interrupt, began: float
) -> Outcome:
    """Train until `config.training.steps`, from the newest good checkpoint in `workdir` if there is one.

    The order within a step is log, evaluate, save: a checkpoint of step s is written after every record of step s, so that a
    resumed run drops the records after s and goes on exactly as the uninterrupted one did.

    Args:
      config: see `configs/`; the nodes seed, optimizer, schedule, training and checkpoint are read here.
      task: model, data and loss.
      batches: this process's batch of each step, counted from 0.
      workdir: an existing directory that this process has locked.
      place: the parallel backend.
      progress: where a person looks.
      interrupt: entered; a remembered signal makes the loop save and leave.
      began: `time.perf_counter()` at the start of the command, for the time to the first step.

    Returns:
      The outcome: "done", "interrupted" or "diverged" (a loss or gradient that is not finite; the last good checkpoint stays).

    Raises:
      UserError: no readable checkpoint, one that does not fit, a full disk.
    """
    every = config.training
    optimizer, schedule = build_optimizer(config.optimizer, config.schedule, steps=every.steps, clip=every.clip)
    how = {name: every[name] for name in ("accumulate", "ema", "compute")}
    step_function = make_step(task.loss, task.weight, optimizer, seed=config.seed, follow=task.follow, **how)
    status = Status(workdir, every.steps)
    with (
        closing(Checkpoints(workdir / "checkpoints", config.checkpoint.keep, warn=progress.warn)) as checkpoints,
        closing(Metrics(workdir)) as metrics,
    ):
        host, begin, best = _restore_or_init(config, task, optimizer, checkpoints)
        checkpoints.check_space(sum(leaf.nbytes for leaf in jax.tree.leaves(host)))
        metrics.rewind(begin or None)
        state, programs = place.place(host), {}
        batch, first = batches(begin), None
        progress.update(begin)
        status.update("running", begin)
        for step in range(begin + 1, every.steps + 1):
            fed, shape = place.feed(batch), batch["source"].shape
            if shape not in programs:
                clock = time.perf_counter()
                programs[shape] = place.compile(step_function, state, fed)
                metrics.time(step, {"compile_seconds": time.perf_counter() - clock})
                progress.compiled("batches of " + "x".join(map(str, shape)), time.perf_counter() - clock)
            clock = time.perf_counter()
            state, sums = programs[shape](state, fed)
            batch = batches(step)  # the next one, while the devices are at work
            values = {name: float(value) for name, value in place.fetch(sums).items()}
            seconds = time.perf_counter() - clock
            first = first or time.perf_counter() - began
            if not math.isfinite(values["loss"] + values["grad_norm"]):
                return Outcome("diverged", step, first, f"loss {values['loss']}, gradient norm {values['grad_norm']} at step {step}")
            pace = {"step_seconds": seconds, "tokens_per_second": values["tokens"] / seconds}
            progress.update(step, loss=values["loss"], **pace)
            if _due(step, every.log_every, every.steps):
                metrics.write(step, "train", {**values, "learning_rate": float(schedule(step - 1))})
                metrics.time(step, pace)
            improved = False
            if _due(step, every.evaluate_every, every.steps):
                scores = task.evaluate(place.one(state.averaged), "valid")
                metrics.write(step, "valid", scores)
                progress.note(f"step {step}: valid " + ", ".join(f"{name} {value:.4g}" for name, value in scores.items()))
                improved, best = scores["loss"] < best, min(best, scores["loss"])
            stop = interrupt.signal is not None and step < every.steps
            if stop or improved or _due(step, config.checkpoint.every, every.steps):
                metrics.sync()
                host = place.fetch(state)
                if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(host.params)):  # an update too large for a finite gradient
                    return Outcome("diverged", step, first, f"parameters that are not finite after step {step}")
                checkpoints.save(step, host, {"best_loss": best}, best=improved)
            if stop:
                return Outcome("interrupted", step, first, f"signal {interrupt.signal}; the same command goes on from here")
            status.update("running", step)
    return Outcome("done", every.steps, first)


def state_like(config: ConfigDict, task: Task) -> TrainState:
    """Shapes and dtypes of the training state, without computing anything: what a checkpoint of this config must hold."""
    optimizer, _ = build_optimizer(config.optimizer, config.schedule, steps=config.training.steps, clip=config.training.clip)
    return jax.eval_shape(lambda: first_state(task.init(jax.random.key(0)), optimizer, config.training.ema, task.carried()))


def best_params(config: ConfigDict, task: Task, workdir: Path) -> tuple[Any, int]:
    """The parameters to use of a trained workdir (its best step on validation, else its newest), and that step; reads only.

    Raises:
      UserError: there is no checkpoint, or it is damaged or does not fit.
    """
    checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep, read_only=True)
    restored = checkpoints.restore(state_like(config, task), "best" if checkpoints.best is not None else None)
    checkpoints.close()
    if restored is None:
        raise UserError(f"no checkpoint in {workdir / 'checkpoints'}: train there first, or name another --workdir")
    return restored.tree.averaged, restored.step


def _due(step: int, every: int, last: int) -> bool:
    """Whether something that happens every so many steps (0: never) and at the last one happens now."""
    return step == last or bool(every and step % every == 0)


def _restore_or_init(config: ConfigDict, task: Task, optimizer: Any, checkpoints: Checkpoints) -> tuple[TrainState, int, float]:
    """The state to begin with on the host, its step, and the best validation loss so far."""
    restored = checkpoints.restore(state_like(config, task))
    if restored is not None:
        return restored.tree, restored.step, restored.meta["best_loss"]
    start = jax.jit(lambda key: first_state(task.init(key), optimizer, config.training.ema, task.carried()))  # one program for all arrays
    return jax.device_get(start(jax.random.key(config.seed))), 0, math.inf
