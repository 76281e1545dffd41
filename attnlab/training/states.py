"""The training state of a task: the first state, the contents of a checkpoint, and the parameters
of a trained run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import optax

from attnlab.errors import UserError
from attnlab.training.checkpoints import Checkpoints
from attnlab.training.drawing import first_params
from attnlab.training.kinds import decayed_by_kind, differently_decayed
from attnlab.training.optimizers import build_optimizer
from attnlab.training.protocol import Beginning, Remembering, Task
from attnlab.training.step import Params, TrainState, Tree, first_state, seed_array
from attnlab.training.trained import Trained

if TYPE_CHECKING:
    from attnlab.tasks.schemas import Settings


def first_states(config: Settings, task: Task) -> Callable[[int], TrainState]:
    """A function from a seed to the state before the first step, on the host; the same programs,
    whatever the seed.
    """
    optimizer = _optimizer(config)
    after = jax.jit(lambda params, key: _first_state(config, task, optimizer, params, key))

    def start(seed: int) -> TrainState:
        key = jax.random.key(seed)
        params = (
            task.begun(key, best_params)
            if isinstance(task, Beginning) and task.pretrained is not None
            else first_params(task.init, key)
        )
        return jax.device_get(after(params, key)).replace(seed=seed_array(seed))

    return start


def state_like(config: Settings, task: Task) -> TrainState:
    """Shapes and dtypes of the training state, without computing anything."""
    begin = functools.partial(_first_state, config, task, _optimizer(config))
    return jax.eval_shape(begin, _shapes(task), jax.random.key(0))


def check_trained(config: Settings, task: Task) -> None:
    """`UserError` where the config freezes, paces or adapts what the model of a task does not have,
    or nobody can tell whether a parameter decays.
    """
    which = Trained.of(config)
    if which != Trained():
        which.check(_shapes(task))
    if config.optimizer.get("decayed") == "kind":
        decayed_by_kind(_shapes(task))


def told_trained(config: Settings, task: Task) -> list[str]:
    """How many parameters are trained, for a person, and which stay as they were drawn though
    others begin with weights; nothing if all are trained. And what decays though it is no matrix,
    or is one and does not.
    """
    which, by_rank = Trained.of(config), config.optimizer.get("decayed") == "rank"
    lines = differently_decayed(_shapes(task)) if by_rank else []
    if which.all:
        return lines
    drawn = task.drawn_anew() if isinstance(task, Beginning) else ()
    params = _shapes(task)
    return [*lines, which.note(params), *which.warnings(params, drawn)]


def remembered(task: Task) -> Tree:
    """What the model of a task remembers of the rows before the first step; None for most tasks."""
    return task.remembered() if isinstance(task, Remembering) else None


def _shapes(task: Task) -> Params:
    """Those of first parameters; a task may know them."""
    known = getattr(task, "shapes", None)
    return jax.eval_shape(task.init, jax.random.key(0)) if known is None else known


def _optimizer(config: Settings) -> optax.GradientTransformation:
    every = config.training
    return build_optimizer(config.optimizer, config.schedule, steps=every.steps, clip=every.clip)[0]


def _first_state(
    config: Settings,
    task: Task,
    optimizer: optax.GradientTransformation,
    params: Params,
    key: jax.Array,
) -> TrainState:
    which, kept = Trained.of(config), {"remembered": remembered(task)}
    params = which.begun(params, jax.random.fold_in(key, 1))
    return first_state(params, optimizer, config.training.ema, task.carried(), **kept, which=which)


def saved_like(config: Settings, task: Task) -> TrainState:
    """The contents of a checkpoint of this config: the state without the seed."""
    return state_like(config, task).replace(seed=None)


def best_params(config: Settings, task: Task, workdir: Path) -> tuple[Params, int]:
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
    return Trained.of(config).seen(restored.tree.averaged), restored.step
