"""How a run changes its state: the first state, and the step from one to the next.

`Updates` is built once from a config and taken by training, evaluation, the count of FLOPs and
stacked trials.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax

from attnlab.errors import UserError
from attnlab.training import arguments
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.drawing import first_params
from attnlab.training.hyperparameters import SMOOTHING, WEIGHTS, numbers
from attnlab.training.kinds import decayed_by_kind, differently_decayed
from attnlab.training.optimizers import build_optimizer
from attnlab.training.step import Params, Step, TrainState, first_state, make_step, seed_array
from attnlab.training.trained import Trained

if TYPE_CHECKING:
    from attnlab.tasks.base import Task
    from attnlab.tasks.schemas import Settings
    from attnlab.training.mesh import Layout

    AnyTask = Task[Any, Any, Any]


@dataclasses.dataclass(frozen=True)
class Updates:
    """The optimizer of a config and what it is applied to.

    Attributes:
      config: read are `optimizer`, `schedule`, `training` and `lora`.
      optimizer: the optax transformation, behind clipping.
      schedule: the learning rate of an update, given the number of those before it.
      trained: which parameters are trained, and how fast.
    """

    config: Settings
    optimizer: optax.GradientTransformation
    schedule: optax.Schedule
    trained: Trained

    @classmethod
    def of(cls, config: Settings, numbers: Mapping[str, Any] | None = None) -> Updates:
        """Those of a config; `numbers`, by dotted name, replace its own, see `build_optimizer`.

        Raises:
          UserError: settings that are wrong or do not go together.
        """
        steps, clip = config.training.steps, config.training.clip
        optimizer, schedule = build_optimizer(
            config.optimizer, config.schedule, steps=steps, clip=clip, instead=numbers
        )
        return cls(config, optimizer, schedule, Trained.of(config))

    @property
    def numbers(self) -> np.ndarray:
        """`TrainState.numbers` of the config."""
        return arguments.pack(self.config)

    def step(self, task: AnyTask, layout: Layout | None = None) -> Step:
        """The step function of a task, see `make_step`, which takes the numbers of the config from
        the state.
        """
        names, training = numbers(self.config), self.config.training

        def take_numbers(state: TrainState, *batch: Any, **axis: Any) -> tuple[TrainState, Any]:
            given = arguments.unpack(names, state.numbers)
            of_loss = {name: given[name] for name in given if name.startswith((SMOOTHING, WEIGHTS))}
            step = make_step(
                functools.partial(task.loss, numbers=of_loss) if of_loss else task.loss,
                task.weight,
                Updates.of(self.config, given).optimizer,
                accumulate=training.accumulate,
                ema=given.get("training.ema", training.ema),
                compute=training.compute,
                follow=task.follow,
                which=self.trained,
                layout=layout if layout is not None and layout.divides else None,
            )
            return step(state, *batch, **axis)

        return take_numbers

    def first_states(self, task: AnyTask) -> Callable[[int], TrainState]:
        """A function from a seed to the state before the first step, on the host; the same
        programs, whatever the seed.
        """
        after = jax.jit(functools.partial(self._first_state, task))

        def start(seed: int) -> TrainState:
            key = jax.random.key(seed)
            given = task.beginning
            params = (
                first_params(task.init, key) if given is None else given.params(key, best_params)
            )
            state = jax.device_get(after(params, key))
            return state.replace(seed=seed_array(seed), numbers=self.numbers)

        return start

    def state_like(self, task: AnyTask) -> TrainState:
        """Shapes and dtypes of the training state, without computing anything."""
        first = functools.partial(self._first_state, task)
        state = jax.eval_shape(first, task.shapes, jax.random.key(0))
        return state.replace(numbers=self.numbers)

    def saved_like(self, task: AnyTask) -> TrainState:
        """The contents of a checkpoint: the state without what the config has."""
        return self.state_like(task).replace(seed=None, numbers=None)

    def best_params(self, task: AnyTask, workdir: Path) -> tuple[Params, int]:
        """The parameters to use of a trained workdir (its best step on validation, else its
        newest), and that step; reads only.

        Raises:
          UserError: there is no checkpoint, or it is damaged or does not fit.
        """
        folder, keep = workdir / "checkpoints", self.config.checkpoint.keep
        with contextlib.closing(Checkpoints(folder, keep, read_only=True)) as checkpoints:
            wanted = self.saved_like(task)
            restored = checkpoints.restore(wanted, None if checkpoints.best is None else "best")
        if restored is None:
            raise UserError(
                f"no checkpoint in {folder}: train there first, or name another --workdir"
            )
        return self.trained.seen(restored.tree.averaged), restored.step

    def check(self, task: AnyTask) -> None:
        """`UserError` where the config freezes, paces or adapts what the model of a task does not
        have, or nobody can tell whether a parameter decays.
        """
        if self.trained != Trained():
            self.trained.check(task.shapes)
        if self.config.optimizer.get("decayed") == "kind":
            decayed_by_kind(task.shapes)

    def notes(self, task: AnyTask) -> list[str]:
        """How many parameters are trained, for a person, and which stay as they were drawn though
        others begin with weights; nothing if all are trained. And what decays though it is no
        matrix, or is one and does not.
        """
        by_rank = self.config.optimizer.get("decayed") == "rank"
        lines = differently_decayed(task.shapes) if by_rank else []
        if self.trained.all:
            return lines
        warnings = self.trained.warnings(
            task.shapes, () if task.beginning is None else task.beginning.drawn()
        )
        return [*lines, self.trained.note(task.shapes), *warnings]

    def _first_state(self, task: AnyTask, params: Params, key: jax.Array) -> TrainState:
        params = self.trained.begun(params, jax.random.fold_in(key, 1))
        return first_state(
            params,
            self.optimizer,
            self.config.training.ema,
            task.carried(),
            remembered=task.remembered(),
            which=self.trained,
        )


def best_params(config: Settings, task: AnyTask, workdir: Path) -> tuple[Params, int]:
    """`Updates.best_params` of a config of which nothing else is needed."""
    return Updates.of(config).best_params(task, workdir)
