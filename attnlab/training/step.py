"""The training state and the one step function, the same under every parallel backend.

A step is a pure function of (state, batch). Randomness is folded from (seed, step), both in the
state: nothing else needs saving, and runs that differ in their seed share one compiled program.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Literal, Protocol, TypeAlias

import flax.struct
import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax

from attnlab.training.mesh import Layout
from attnlab.training.trained import ALL_TRAINED, Trained
from attnlab.training.trained import Params as Params
from attnlab.training.trained import Tree as Tree

Batch: TypeAlias = Mapping[str, jax.Array | np.ndarray]
Sums: TypeAlias = dict[str, jax.Array]
Part: TypeAlias = tuple[Batch, Tree]
"""Rows of a batch, and what is remembered of them (None for nothing)."""
Step: TypeAlias = "Callable[..., tuple[TrainState, Sums]]"
"""`step(state, batch, axis_name=None)`, see `make_step`."""
_PARAMETERS = 0x70617261
"""What is folded into the key of a microbatch for what is random in its parameters."""


class Loss(Protocol):
    """The objective of a task: a sum over the batch, so that devices and microbatches can be added."""

    def __call__(
        self, params: Params, batch: Batch, key: jax.Array, *args: Tree, **kwargs: Tree
    ) -> tuple[jax.Array, Sums]:
        """The summed loss, and further sums to report ("correct", "tokens", ...).

        A loss with `carried` gets it as a keyword, and adds "tracked" to the sums: a tree of sums
        for `follow`. A loss with `remembered` (the state of each row after the previous step) gets
        it as a keyword, and adds "remembered": the new state of these rows, which is not summed and
        has no gradient. A loss whose parameters follow the batch beside their gradient (the running
        averages of batch norm) adds "statistics", as `_follow_statistics` takes them: those of the
        whole batch, the same on every device, so that they are not summed.
        """


class TrainState(flax.struct.PyTreeNode):
    """The whole state of a run at a step.

    Attributes:
      step: [] int32, updates made.
      params: float32 parameters.
      opt_state: the optimizer's.
      ema: exponential moving average of the parameters; None if the config has none.
      carried: values that the loss keeps from step to step (such as a baseline), None for nothing.
      remembered: the state of each row of the batch for the next step (of a language model), None
        for nothing; arrays have the rows of the global batch as leading axis.
      seed: [] uint32, of the run; None in a checkpoint, since the config has it.
      numbers: of the config, see `arguments.pack`; None in a checkpoint likewise.
    """

    step: jax.Array
    params: Params
    opt_state: Tree
    ema: Params | None = None
    carried: Tree = None
    remembered: Tree = None
    seed: Tree = None
    numbers: Tree = None

    @property
    def averaged(self) -> Params:
        """The parameters to evaluate with: the moving average if there is one."""
        return self.params if self.ema is None else self.ema


def seed_array(seed: int) -> np.ndarray:
    """A run's seed as the state holds it: [] uint32, the low 32 bits, which are all that
    `jax.random.key` uses of a number.
    """
    return np.asarray(seed % 2**32, np.uint32)


def first_state(
    params: Params,
    optimizer: optax.GradientTransformation,
    ema: float,
    carried: Tree = None,
    seed: int = 0,
    remembered: Tree = None,
    trained: Trained = ALL_TRAINED,
) -> TrainState:
    """Returns the `TrainState` before the first update: step 0, the moving average (None without
    `ema`) equal to the parameters, the optimizer's state of the `trained` parameters alone, `carried`,
    `remembered` and seed as given.
    """
    average = params if ema else None
    return TrainState(
        jnp.zeros((), jnp.int32),
        params,
        optimizer.init(trained.split(params)[0]),
        average,
        carried,
        remembered,
        jnp.asarray(seed_array(seed)),
    )


def make_step(
    loss: Loss,
    weight: Callable[[Batch], jax.Array],
    optimizer: optax.GradientTransformation,
    *,
    accumulate: int = 1,
    ema: float = 0.0,
    compute: Literal["float32", "bfloat16"] = "float32",
    follow: Callable[[Tree, Tree], Tree] | None = None,
    trained: Trained = ALL_TRAINED,
    layout: "Layout | None" = None,
) -> Step:
    """Builds the training step, `step(state, batch, axis_name=None) -> (state, metrics)`:
    gradients, optimizer, moving averages.

    The objective is sum(loss) / sum(weight) over the whole batch: over devices (`axis_name`, if the
    step runs under `pmap`) and over `accumulate` microbatches alike, so that neither changes the
    result beyond rounding.

    Args:
      loss: the task's summed loss.
      weight: the divisor, from the batch alone (such as the number of target tokens).
      optimizer: includes clipping and the schedule.
      accumulate: microbatches per update; must divide the rows of a device.
      ema: decay of the moving average of parameters, where the state has one; or its `Number`.
      compute: dtype of the forward and backward pass; parameters, optimizer and loss stay float32.
      follow: `follow(carried, tracked)` to what is carried on, where the state carries something
        for the loss.
      trained: which parameters are trained, and how fast.
      layout: where parameters lie, if they are divided.

    Returns:
      The step; its metrics are "loss" (per weight), "grad_norm" (of what is trained, before
      clipping) and the loss's sums.
    """

    def step(
        state: TrainState, batch: Batch, axis_name: str | None = None
    ) -> tuple[TrainState, Sums]:
        """Makes one update of the state with a batch; returns the next state and the metrics,
        summed over devices.
        """
        key = jax.random.fold_in(jax.random.key(state.seed), state.step)
        total = weight(batch)
        if axis_name is not None:
            total = jax.lax.psum(total, axis_name)
            key = jax.random.fold_in(key, jax.lax.axis_index(axis_name))
        carrying = loss if state.carried is None else functools.partial(loss, carried=state.carried)
        free, fixed = trained.split(state.params)
        make_params = functools.partial(_model_params, trained, fixed)
        objective = functools.partial(_objective, carrying, compute, make_params, layout)
        part = (dict(batch), state.remembered)
        grads, metrics, (remembered, statistics) = _gradients(
            jax.grad(objective, has_aux=True), accumulate, free, part, key, jnp.maximum(total, 1)
        )
        if axis_name is not None:
            grads, metrics = jax.lax.psum((grads, metrics), axis_name)
        metrics["grad_norm"] = optax.tree.norm(grads)
        updates, opt_state = optimizer.update(grads, state.opt_state, free)
        updates = trained.scale_updates(updates, state.params)
        params = _follow_statistics(optax.apply_updates(free, updates), free, statistics)
        average, carried = _update_average(state.ema, params, ema, trained, fixed), state.carried
        if follow is not None and carried is not None:
            carried = follow(carried, metrics.pop("tracked"))
        params = trained.join(params, fixed)
        fields = (state.step + 1, params, opt_state, average, carried, remembered)
        return TrainState(*fields, state.seed, state.numbers), metrics

    return step


def _follow_statistics(params: Params, previous: Params, statistics: Tree) -> Params:
    """Returns `params` after an update, with each running average of batch statistics set to c a +
    (1 - c) b, where a is its value in `previous` and b that of the batch. `statistics` has, below
    the path of a module, a pair for each call of it: c, and every b by the name of its parameter;
    those that are not trained stay.
    """
    if not statistics:
        return params
    moved, old = (dict(flax.traverse_util.flatten_dict(tree)) for tree in (params, previous))
    for path, calls in flax.traverse_util.flatten_dict(statistics).items():
        for decay, batch_values in calls:
            for name, value in batch_values.items():
                key = (*path[:-1], name)
                if key in old:
                    old[key] = moved[key] = decay * old[key] + (1.0 - decay) * value
    return flax.traverse_util.unflatten_dict(moved)  # type: ignore[no-any-return]


def _update_average(
    average: Params | None,
    free: Params,
    ema: float,
    trained: Trained,
    fixed: Params,
) -> Params | None:
    """Returns the exponential moving average of all parameters, of decay `ema`, after an update of
    the trained ones to `free`, while the others stay `fixed`, or None if there is no `average`.
    """
    if average is None:
        return None
    previous, _ = trained.split(average)
    updated = jax.tree.map(lambda a, p: ema * a + (1.0 - ema) * p, previous, free)
    return trained.join(updated, fixed)


def averages(statistics: Tree) -> set[tuple[str, ...]]:
    """Returns the paths (tuples of names) of the parameters that are running averages of batch
    statistics, as collected in `statistics`.
    """
    return {
        (*path[:-1], name)
        for path, calls in flax.traverse_util.flatten_dict(statistics).items()
        for _, batch_values in calls
        for name in batch_values
    }


def _model_params(trained: Trained, fixed: Params, free: Params, key: jax.Array) -> Params:
    """Returns what the model computes with, of the parameters that are trained, `free`, and the
    `fixed` ones; `key` is that of the loss.
    """
    params_key = jax.random.fold_in(key, _PARAMETERS)  # the loss draws from the key itself
    return trained.merge(trained.join(free, fixed), params_key)


def _objective(
    loss: Loss,
    compute: str,
    make_params: Callable[[Params, jax.Array], Params],
    layout: "Layout | None",
    params: Params,
    part: Part,
    key: jax.Array,
    total: jax.Array,
) -> tuple[jax.Array, tuple[Sums, Tree]]:
    """Computes the loss of the rows in `part` (batch, remembered rows) over the weight `total` of
    the whole batch, in the precision `compute`; returns it with the sums to report, the rows' new
    memory and the batch statistics. `make_params` makes all parameters of `params`, those that are
    trained.
    """
    batch, remembered = part
    params = make_params(params, key)
    if compute != "float32":
        params = jax.tree.map(lambda p: p.astype(compute), params)
    keywords = {} if remembered is None else {"remembered": remembered}
    with layout.gathered(params) if layout else contextlib.nullcontext(params) as whole_params:
        summed, sums = loss(whole_params, batch, key, **keywords)
    new_rows = jax.tree.map(
        lambda new, old: new.astype(old.dtype), sums.pop("remembered", None), remembered
    )
    statistics: Tree = sums.pop("statistics", {})
    return summed / total, ({"loss": summed / total, **sums}, (new_rows, statistics))


def _gradients(
    differentiate: Callable[..., tuple[Params, tuple[Sums, Tree]]],
    accumulate: int,
    params: Params,
    part: Part,
    key: jax.Array,
    total: jax.Array,
) -> tuple[Params, Sums, Tree]:
    """Computes by `differentiate` the gradients and sums of `part` (batch, remembered rows), in
    `accumulate` microbatches that are added; returns them with the rows' new memory and batch
    statistics (ValueError for these in microbatches).

    Raises:
      ValueError: statistics of a batch that is never there as a whole.
    """
    if accumulate == 1:
        grads, (sums, extras) = differentiate(params, part, key, total)
        return grads, sums, extras
    # Every accumulate-th row: so each device has a part of each microbatch, and no row moves to
    # another device.
    parts = jax.tree.map(lambda x: x.reshape(-1, accumulate, *x.shape[1:]).swapaxes(0, 1), part)

    def add(carry: Tree, microbatch: tuple[Part, jax.Array]) -> tuple[Tree, Tree]:
        grads, (sums, extras) = differentiate(params, *microbatch, total)
        return jax.tree.map(jnp.add, carry, (grads, sums)), extras

    keys = jax.random.split(key, accumulate)
    shapes = jax.eval_shape(
        differentiate, params, jax.tree.map(lambda x: x[0], parts), keys[0], total
    )
    if shapes[1][1][1]:
        raise ValueError("a loss with statistics of the batch takes no microbatches")
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), (shapes[0], shapes[1][0]))
    (grads, sums), extras = jax.lax.scan(add, zeros, (parts, keys))
    return grads, sums, jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), extras)
