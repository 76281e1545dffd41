"""Candidates as the trials will build them: configs resolved and checked, tasks with their data,
parameters counted, and the work of a training step, as `attnlab.analysis.work` counts programs.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from attnlab import config as configs
from attnlab.analysis.work import Work, flops, work
from attnlab.data.batching import TrainBatches
from attnlab.errors import UserError
from attnlab.experiments.define import text
from attnlab.tasks import TASKS
from attnlab.tasks.metrics import with_metrics
from attnlab.tasks.models import check_longest
from attnlab.tasks.schemas import Settings
from attnlab.training.gradients import idle_paths
from attnlab.training.parent import lineage_of
from attnlab.training.run import check
from attnlab.training.step import averages
from attnlab.training.trained import Trained
from attnlab.training.updates import Updates

_FREE = (
    "seed",
    "schedule",
    "checkpoint",
    "decoding",
    "parallel",
    "training.steps",
    "training.log_every",
    "training.evaluate_every",
)
"""Settings that change neither parameters nor FLOPs, so that candidates that differ in them alone
are counted once.
"""


class Builder:
    """Builds the candidates of one experiment; shared data is read and counted once.

    Attributes:
      file: config file and argument.
      seed: of all configs.
    """

    def __init__(self, file: str, seed: int) -> None:
        """Stores the config file and the seed of all configs, and makes empty caches of configs,
        data and counts.
        """
        self.file, self.seed = file, seed
        self._configs: dict[str, Settings] = {}
        self._data: dict[str, Any] = {}
        self._counts: dict[str, Any] = {}
        # the task built last and its batches, each with its config as text
        self._last: tuple[str, Any] = ("", None)
        self._ordered: tuple[str, Any] = ("", None)

    def resolved(self, overrides: Mapping[str, Any]) -> Settings:
        """Returns the config of the file with overrides and the seed, before any model is built.

        Raises:
          UserError: a misspelt key, a value of the wrong type or out of range.
        """
        settings = {**overrides, "seed": self.seed}
        return configs.load(self.file, [f"{key}={text(value)}" for key, value in settings.items()])

    def config(self, overrides: Mapping[str, Any]) -> Settings:
        """Returns the resolved config with overrides, checked as `train` checks it before it reads
        data; the same overrides are resolved once.

        Raises:
          UserError: anything wrong with it.
        """
        key = _key(overrides)
        if key not in self._configs:
            config = self.resolved(overrides)
            check(TASKS.resolve(config.task), config)
            lineage_of(config)
            self._configs[key] = config
        return self._configs[key]

    def task(self, config: Settings) -> Any:
        """Returns the task of a config with its data and vocabularies, after its training batches
        were made, which checks them.

        Raises:
          UserError: data that cannot be read, or batches that the config does not allow.
        """
        self._batches(config)
        return self.built(config)

    def built(self, config: Settings) -> Any:
        """Returns the task of a config with its data (read at the first call), without its batches;
        the last task is stored, and returned again for the same config. Parameters ask for no more,
        and a budget counts them at many sizes: the batches of an epoch may take longer than the
        shapes.
        """
        whole = _key(config)
        if whole != self._last[0]:
            self._last = whole, self._new_task(config)
        return self._last[1]

    def _batches(self, config: Settings) -> Any:
        """Returns the training batches of a config's task; the last ones are stored, and returned
        again for the same config.
        """
        whole = _key(config)
        if whole != self._ordered[0]:
            self._ordered = whole, self.built(config).batches(config.training.accumulate)
        return self._ordered[1]

    def _new_task(self, config: Settings) -> Any:
        """Returns a new task of a config with its training and validation data, which is read once
        for all configs with the same task, data and vocabulary settings; raises `UserError` if its
        metrics or longest examples do not fit.
        """
        kind = TASKS.resolve(config.task)
        read = ("task", "data", "vocabulary")
        key = _key({name: node for name, node in config.items() if name in read})
        if key not in self._data:
            self._data[key] = kind.load(config, None, ("train", "valid")).data
        task = kind.from_data(config, self._data[key])
        with_metrics(task)
        check_longest(task, ("train", "valid"))
        return task

    def count(self, config: Settings, what: str) -> float:
        """Returns the number of parameters of a config's model (`what` is "parameters") or the
        FLOPs of its training step ("flops"); counts once for all configs that differ only in
        settings without effect on it, and reads the data the first time.

        Raises:
          UserError: see `task`.
        """
        key = what + _lasting(config)
        if key not in self._counts:
            task = self.built(config)
            self._counts[key] = step_flops(config, task) if what == "flops" else _parameters(task)
        return self._counts[key]

    def work(self, config: Settings) -> Work:
        """Returns the `Work` of a training step of a config (FLOPs and more, and the parameters
        that get no gradient); computed once for all configs that differ only in settings without
        effect on it.

        Raises:
          UserError: see `task`.
        """
        key = "work" + _lasting(config)
        if key not in self._counts:
            self._counts[key] = step_work(config, self.built(config))
        return self._counts[key]

    def examples(self, config: Settings) -> float | None:
        """Returns the mean number of examples in a training step over an epoch, or None for running
        text, which has no examples.

        Raises:
          UserError: see `task`.
        """
        batches = self._batches(config)
        if not isinstance(batches, TrainBatches):
            return None
        return batches.examples / batches.batches_per_epoch


def _lasting(config: Settings) -> str:
    """Returns those settings of a config that affect parameters or FLOPs (not `_FREE`), as text."""
    settings = configs.flat(config).items()
    return _key({name: value for name, value in settings if not configs.is_below(name, _FREE)})


def _parameters(task: Any) -> int:
    """Returns the number of parameters of a task's model, from shapes alone."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(task.shapes))


def _key(values: Mapping[str, Any] | Settings) -> str:
    return json.dumps(configs.to_dict(values), sort_keys=True)


@contextmanager
def naming(variant: str, tuned: Mapping[str, Any]) -> Iterator[None]:
    """Context manager: puts the candidate's name (variant and tuned settings) before the message of
    a `UserError` that the block raises.
    """
    try:
        yield
    except UserError as error:
        settings = "".join(f" with {key}={text(value)}" for key, value in tuned.items())
        raise UserError(f"variant {variant!r}{settings}: {error}") from error


def step_work(config: Settings, task: Any) -> Work:
    """Returns the `Work` (FLOPs and more) of one training step (forward, backward, update) on the
    mean batch of an epoch of the task's data, with the paths of the trained parameters that get no
    gradient and are no running averages as `idle`.

    The mean batch has the mean width of the batches of an epoch, and as many rows as give their
    mean number of positions, both rounded: exact except for rounding if the cost is linear in the
      width, a little low if it is quadratic.

    Args:
      config: the whole config.
      task: with its data.
    """
    step, state, batch = _step(config, task)
    carried = {name: getattr(state, name) for name in ("carried", "remembered")}
    carried = {name: value for name, value in carried.items() if value is not None}
    key, seen = jax.eval_shape(lambda: jax.random.key(0)), Trained.of(config).merge
    moved: set[str] = set()

    def loss(params: Any, batch: Any, key: Any, carried: Any) -> Any:
        value, sums = task.loss(seen(params), batch, key, **carried)
        moved.update("/".join(path) for path in averages(sums.get("statistics", {})))
        return value

    unused = idle_paths(loss, state.params, batch, key, carried)
    still = tuple(path for path in unused if path not in moved)
    return dataclasses.replace(work(step, state, batch), idle=still)


def step_flops(config: Settings, task: Any) -> float:
    """Returns the FLOPs of `step_work` alone."""
    return flops(*_step(config, task))


def _step(config: Settings, task: Any) -> tuple[Callable[..., Any], Any, Any]:
    """Returns the training step function of a config, and the shapes of its state and of its mean
    batch.
    """
    updates, parts = Updates.of(config), config.training.accumulate
    state = updates.state_like(task)
    return updates.step(task), state, mean_batch(task.batches(parts), parts)


def mean_batch(batches: Any, multiple: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns {column: shape and dtype} of a batch that has the mean width and mean number of
    positions of an epoch's `batches`, its number of rows a multiple of `multiple`. Only the axes
    that are as long as a batch is wide get the mean width: not those of images, or of the several
    questions about one.
    """
    rows, widths = np.transpose(batches.shapes)
    width = np.average(widths, weights=batches.counts)
    positions = np.average(rows * widths, weights=batches.counts)
    count = max(1, round(positions / width / multiple)) * multiple
    first, wide = batches(0), _wide(batches)

    def mean(name: str, array: np.ndarray) -> tuple[int, ...]:
        sizes = enumerate(array.shape[1:], 1)
        return (count, *(round(width) if (name, axis) in wide else size for axis, size in sizes))

    return {
        name: jax.ShapeDtypeStruct(mean(name, array), array.dtype) for name, array in first.items()
    }


def _wide(batches: Any) -> set[tuple[str, int]]:
    """Returns the axes, as (column, axis), whose length is the width of the batch, found from two
    batches of different widths; none if all have one width.
    """
    used = [
        width for (_, width), count in zip(batches.shapes, batches.counts, strict=True) if count
    ]
    first, widths = batches(0), {*used}
    for step in range(1, sum(batches.counts) if len(widths) > 1 else 1):
        other = batches(step)
        axes = {
            (name, axis)
            for name, array in first.items()
            for axis, sizes in enumerate(zip(array.shape, other[name].shape, strict=True))
            if axis and sizes[0] != sizes[1] and {*sizes} <= widths
        }
        if axes:
            return axes
    return set()
