"""How a run changes its state: the first state, and the step from one to the next.

`Updates` is built once from a config and taken by training, evaluation, the count of FLOPs and
stacked trials.

First parameters are drawn without a program of their own. A jitted `init` is one program with the
code of every draw in it, which takes longer to compile than a training step, and no two models share
it. Here each draw is a program by itself, compiled once for each shape and distribution: GPT-2's 12
layers of 12 need a dozen.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import jax
import numpy as np
import optax
from jax.extend.core import Jaxpr, Literal, Var, jaxpr_as_fun

from attnlab.errors import UserError
from attnlab.training import arguments
from attnlab.training.checkpoints import Checkpoints, Followed
from attnlab.training.hyperparameters import SMOOTHING, WEIGHTS, numbers
from attnlab.training.kinds import decayed_by_kind, differently_decayed
from attnlab.training.mesh import Layout, place, spans
from attnlab.training.optimizers import build_optimizer
from attnlab.training.pruning import ALONE, CHECKPOINTS, saved_steps
from attnlab.training.step import Params, Step, Sums, TrainState, first_state, make_step, seed_array
from attnlab.training.trained import Trained, Tree

if TYPE_CHECKING:
    from attnlab.tasks import AnyTask
    from attnlab.tasks.schemas import Settings

Drawn = TypeVar("Drawn")


@dataclasses.dataclass(frozen=True)
class Updates:
    """The optimizer of a config and what it is applied to.

    Attributes:
      config: read are `optimizer`, `schedule`, `training` and `lora`.
      optimizer: the optax transformation, behind clipping.
      schedule: the learning rate of an update, given the number of those before it.
      trained: which parameters are trained, and how fast.
      layout: where the arrays of a divided state lie; None if they are whole.
    """

    config: "Settings"
    optimizer: optax.GradientTransformation
    schedule: optax.Schedule
    trained: Trained
    layout: Layout | None = None

    @classmethod
    def of(cls, config: "Settings", numbers: Mapping[str, object] | None = None) -> "Updates":
        """Builds the `Updates` of a config: optimizer, schedule and what is trained; `numbers`, by
        dotted name, replace the config's values unchecked; raises `UserError` for settings that are
        wrong. See `build_optimizer`.

        Raises:
          UserError: settings that are wrong or do not go together.
        """
        steps, clip = config.training.steps, config.training.clip
        optimizer, schedule = build_optimizer(
            config.optimizer, config.schedule, steps=steps, clip=clip, instead=numbers
        )
        return cls(config, optimizer, schedule, Trained.of(config))

    @classmethod
    def for_reading(cls, config: "Settings") -> "Updates":
        """Builds the `Updates` of a trained run, to read its checkpoints: a divided state is
        divided over the local devices (at most `parallel.devices`; with one it is whole), whatever
        those of training were.
        """
        updates, devices = cls.of(config), jax.local_devices()[: config.parallel.devices or None]
        if config.parallel.fsdp == 1 or len(devices) == 1:
            return updates
        parallel = dataclasses.replace(config.parallel, data=1, fsdp=len(devices))
        return dataclasses.replace(updates, layout=Layout.of(parallel, devices))

    @property
    def numbers(self) -> np.ndarray:
        """`TrainState.numbers` of the config."""
        return arguments.pack(self.config)

    def step(self, task: "AnyTask") -> Step:
        """Returns the step function of a task, see `make_step`, which takes the numeric settings of
        the config from the state, so that one program serves all values.
        """
        names, training = numbers(self.config), self.config.training

        def take_numbers(state: TrainState, *batch: object, **axis: str) -> tuple[TrainState, Sums]:
            """Builds the step with the numbers of this state in place of the config's, and makes
            the update.
            """
            traced = arguments.unpack(names, state.numbers)
            of_loss = [name for name in traced if name.startswith((SMOOTHING, WEIGHTS))]
            options = {name: traced[name] for name in of_loss}
            step = make_step(
                functools.partial(task.loss, numbers=options) if options else task.loss,
                task.weight,
                Updates.of(self.config, traced).optimizer,
                accumulate=training.accumulate,
                ema=traced.get("training.ema", training.ema),
                compute=training.compute,
                follow=task.follow,
                trained=self.trained,
                layout=self.layout,
            )
            return step(state, *batch, **axis)

        return take_numbers

    def first_states(self, task: "AnyTask") -> Callable[[int], TrainState]:
        """Returns a function from a seed to the state before the first step, on the host, or
        divided as `layout` says, with no more than one array whole at a time.
        """
        like = self.state_like(task).replace(numbers=None)
        shardings = self.layout and self.layout.shardings(like)
        param_shardings = shardings and {name: shardings.params[name] for name in task.shapes}
        first = functools.partial(self._first_state, task)
        jitted = jax.jit(first, out_shardings=shardings, donate_argnums=(0,) if shardings else ())

        def start(seed: int) -> TrainState:
            """Draws the parameters with the seed, or takes them from the weights that the run
            begins with, and returns the state before the first step.
            """
            key = jax.random.key(seed)
            if task.beginning is None:
                params = evaluate_traced(task.traced_init, key, shardings=param_shardings)
            else:
                params = task.beginning.params(key, best_params)
                params = jax.tree.map(place, params, param_shardings) if shardings else params
            state = jitted(params, key)
            state = state if shardings else jax.device_get(state)
            return state.replace(seed=seed_array(seed), numbers=self.numbers)

        return start

    def state_like(self, task: "AnyTask") -> TrainState:
        """Shapes and dtypes of the training state, without computing anything."""
        first = functools.partial(self._first_state, task)
        state = jax.eval_shape(first, task.shapes, jax.random.key(0))
        return state.replace(seed=seed_array(self.config.seed), numbers=self.numbers)

    def saved_like(self, task: "AnyTask") -> TrainState:
        """Returns shapes and dtypes of the state as a checkpoint has it, without seed and numbers,
        and with the sharding of each array if the state is divided.
        """
        like = self.state_like(task).replace(seed=None, numbers=None)
        shardings = self.layout and self.layout.shardings(like)
        if shardings is None:
            return like
        return jax.tree.map(lambda leaf, sharding: leaf.update(sharding=sharding), like, shardings)

    def best_params(self, task: "AnyTask", workdir: Path) -> tuple[Params, int]:
        """Reads the parameters to use of a trained workdir, as `best_parts`, with the products of
        LoRA added; returns them and the step.
        """
        params, step = self.best_parts(task, workdir)
        return self.trained.merge(params), step

    def best_parts(self, task: "AnyTask", workdir: Path) -> tuple[Params, int]:
        """Reads the parameters (their moving average if there is one) of a trained workdir, of its
        best step on validation, else the newest, LoRA's beside the others; returns them and the
        step; raises `UserError` if no checkpoint can be read.

        Raises:
          UserError: there is no checkpoint, or it is damaged or does not fit.
        """
        like, alone = self.saved_like(task), bool(saved_steps(workdir / ALONE))
        requested: Any = {"params": like.averaged} if alone else like
        folder = workdir / (ALONE if alone else CHECKPOINTS)
        kind = Followed if spans(requested) and jax.process_index() else Checkpoints
        with contextlib.closing(kind(folder, 1, read_only=True)) as checkpoints:
            restored = checkpoints.restore(requested, None if checkpoints.best is None else "best")
        if restored is None:
            raise UserError(
                f"no checkpoint in {folder}: train there first, or name another --workdir"
            )
        return restored.tree["params"] if alone else restored.tree.averaged, restored.step

    def check(self, task: "AnyTask") -> None:
        """`UserError` where the config freezes, paces or adapts what the model of a task does not
        have, or nobody can tell whether a parameter decays.
        """
        if self.trained != Trained():
            self.trained.check(task.shapes)
        if self.config.optimizer.get("decayed") == "kind":
            decayed_by_kind(task.shapes)

    def notes(self, task: "AnyTask") -> list[str]:
        """Returns a list of lines of text: with `optimizer.decayed=rank` one on what decays by rank
        but not by kind or the reverse, if anything does, and, unless all parameters are trained as
        they are, how many are trained and which stay as drawn at random.
        """
        by_rank = self.config.optimizer.get("decayed") == "rank"
        lines = differently_decayed(task.shapes) if by_rank else []
        if self.trained.all:
            return lines
        warnings = self.trained.warnings(
            task.shapes, () if task.beginning is None else task.beginning.drawn_paths()
        )
        return [*lines, self.trained.note(task.shapes), *warnings]

    def _first_state(self, task: "AnyTask", params: Params, key: jax.Array) -> TrainState:
        """Returns the `TrainState` before the first step, with LoRA's adapters, drawn with `key`,
        beside these parameters.
        """
        params = self.trained.with_adapters(params, jax.random.fold_in(key, 1))
        ema, remembered = self.config.training.ema, task.remembered()
        optimizer, carried, trained = self.optimizer, task.carried(), self.trained
        return first_state(params, optimizer, ema, carried, remembered=remembered, trained=trained)


def best_params(config: "Settings", task: "AnyTask", workdir: Path) -> tuple[Params, int]:
    """`Updates.best_params` of a config of which nothing else is needed."""
    return Updates.for_reading(config).best_params(task, workdir)


def first_params(init: Callable[..., Drawn], *arguments: Tree, shardings: Tree = None) -> Drawn:
    """Returns `init(*arguments)`, a tree of arrays: traced, and what the result needs of it computed
    operation by operation. What else `init` computes, such as the pass through the model in which
    Flax finds its parameters, is left out. Equal to `jax.jit(init)(*arguments)` up to rounding.

    With `shardings`, a tree like the result, each array is placed as soon as it is drawn, so that no
    more than one is ever whole: the same bits.
    """
    return evaluate_traced(jax.jit(init).trace(*arguments), *arguments, shardings=shardings)


def evaluate_traced(traced: jax.stages.Traced, *arguments: Tree, shardings: Tree = None) -> Tree:
    """Returns the results (a tree of arrays) of a traced function at the `arguments`, without
    computing its unused equations; with `shardings`, one for each result, computes and places one
    result after another, so that only one is ever whole.
    """
    closed, shape = traced.jaxpr, traced.out_info
    needed, arrays = _without_unused(closed.jaxpr), jax.tree.leaves(arguments)

    def evaluate_results(results: list[Var | Literal]) -> list[jax.Array]:
        part = _without_unused(needed.replace(outvars=results))
        return jaxpr_as_fun(type(closed)(part, closed.consts))(*arrays)

    if shardings is None:
        leaves = evaluate_results(needed.outvars)
    else:
        pairs = zip(needed.outvars, jax.tree.leaves(shardings), strict=True)
        leaves = [place(evaluate_results([result])[0], sharding) for result, sharding in pairs]
    return jax.tree.unflatten(jax.tree.structure(shape), leaves)


def _without_unused(jaxpr: Jaxpr) -> Jaxpr:
    """Returns the program without the equations on which no result depends; those with effects
    stay.
    """
    needed = {var for var in jaxpr.outvars if isinstance(var, Var)}
    equations = []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not needed.isdisjoint(equation.outvars):
            equations.append(equation)
            needed.update(var for var in equation.invars if isinstance(var, Var))
    return jaxpr.replace(eqns=equations[::-1])
