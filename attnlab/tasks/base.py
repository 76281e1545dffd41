"""The base of all tasks: what is the same whatever is learned.

A task joins data, a system, a loss and its scores. It says which columns its batches have
(`columns`), what is summed over a batch (`summed`, or `sums` as a whole) and which scores follow
(`averaged`). Parameters, batches, evaluation, what is kept with a run, answers and maps are written
here. `tasks/texts.py` is the base of tasks of labelled texts, `tasks/images.py` of those of images.

Axis letters: B rows of a batch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data import columns
from attnlab.data.batching import Batches, TrainBatches, evaluation_batches
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.columns import Declared, Examples
from attnlab.data.longer import treat_long_examples
from attnlab.data.settings import Buckets
from attnlab.errors import UserError
from attnlab.records.items import Items
from attnlab.records.measures import Measure
from attnlab.systems.protocol import System
from attnlab.tasks import models
from attnlab.tasks.auxiliary import Terms
from attnlab.tasks.looks import over_image
from attnlab.tasks.protocol import (
    Axis,
    Batch,
    Example,
    Loaded,
    Maps,
    Params,
    Response,
    Rngs,
    Scores,
    Smoothing,
    Sums,
    Totals,
    Tree,
    Typed,
)
from attnlab.tasks.schemas import Settings

if TYPE_CHECKING:
    from attnlab.tasks.pretrained import Beginning

Config = TypeVar("Config", bound=Settings)
Data = TypeVar("Data", bound=Loaded)
Model = TypeVar("Model", bound=System)


class Task(Generic[Config, Data, Model]):
    """What is learned; one object for a run. `check` and `load` are asked of the class.

    Attributes:
      systems: the kind of system that it trains, a class of `attnlab.systems.protocol`.
      schema: the class that describes its configs, see `attnlab.tasks.schemas`.
      reads: the method of a data source that it calls: "pairs", "texts", "labelled" or another.
      loads, columns: the class of `data`, and the arrays of a batch, by name.
      inputs: those that the system reads, in the order of its arguments.
      measures: the scores of a split, those of `evaluate` and `score` together, each with which way
        is better, its bounds, and of what it is a share ("min" or "max" alone says which way), as
        `attnlab.records.measures.declared` reads them. `results.json` and `valid.json` have them.
      evaluated: those of them that `evaluate` gives, which are known while a model is trained.
      units: what stands beside a measure in a table; without one, "<measure>_signature" of scores.
      examples: what the examples of a split are called in a table ("sentences").
      outputs, item: the file for what `score` gives beside numbers, one line an example; what the
        sum "tokens" of a batch counts, for the progress of a run.
      extra_tokens: tokens that a row has on top of those of its text.
      at_once: rows of a batch that is not trained on.
      longer: what has become of examples longer than `batch.max_length`, a line for each split.
      config, data: of the run; data of the splits that were asked for.
      system, auxiliary: the model, and what is added to the loss; None for nothing.
    """

    systems: ClassVar[type[System]]
    schema: ClassVar[type[Settings]]
    reads: ClassVar[str]
    loads: ClassVar[type[Loaded]]
    columns: ClassVar[Mapping[str, Declared]]
    config: Config
    inputs: Sequence[str]
    measures: Mapping[str, Measure | str]
    evaluated: ClassVar[Sequence[str]]
    units: ClassVar[Mapping[str, str]] = {}
    examples: ClassVar[str] = "examples"
    outputs: ClassVar[str] = ""
    item: ClassVar[str] = "tok"
    extra_tokens: ClassVar[int] = 0
    at_once: int = 64
    longer: Sequence[str] = ()

    def __init__(
        self, config: Config, data: Data, system: Model, auxiliary: Terms | None = None
    ) -> None:
        self.config, self.data, self.system, self.auxiliary = config, data, system, auxiliary
        score = functools.partial(self.sums, smoothing=0.0)
        self._score, self._score_all = jax.jit(score), jax.jit(jax.vmap(score, in_axes=(0, None)))

    # --- what a task says ---

    @classmethod
    def check(cls, config: Config) -> None:
        """Build all that needs no data, so that a bad config fails before any is read;
        `UserError`.
        """
        raise NotImplementedError

    @classmethod
    def read(cls, config: Config, workdir: Path | None, splits: Sequence[str]) -> Data:
        """The data of `splits`, of the class `loads`; what was learned (a vocabulary) comes from
        `workdir` if that is given; `UserError`.
        """
        raise NotImplementedError

    def summed(self, outputs: Tree, batch: Batch, smoothing: Smoothing) -> Sums:
        """Sums over the real rows of a batch, given what the system makes of it: "loss", and what
        stands beside it in the record of a step: "tokens", "correct".
        """
        raise NotImplementedError

    def averaged(self, totals: Totals) -> dict[str, float]:
        """The scores `evaluated` of a split, "loss" first, from its sums and what `split_totals` says."""
        raise NotImplementedError

    def weight(self, batch: Batch) -> jax.Array:
        """What the summed loss is divided by."""
        raise NotImplementedError

    # --- what it may say ---

    def sums(
        self, params: Params, batch: Batch, smoothing: Smoothing = 0.0, rngs: Rngs | None = None
    ) -> Sums:
        """The sums that scores are made of; those of `summed`, unless a task adds to them."""
        return self.summed(self.apply(params, batch, rngs=rngs), batch, smoothing)

    def auxiliary_inputs(self, outputs: Tree, batch: Batch) -> dict[str, Tree]:
        """What `auxiliary` has to know of a batch beside what a pass collected: its arguments."""
        raise NotImplementedError

    def target_ids(self) -> tuple[np.ndarray, int] | None:
        """All ids to predict in training, and how many different ones there may be, for the output
        bias; None if none are predicted.
        """
        return None

    def split_totals(self, split: str) -> dict[str, int]:
        """What `averaged` has to know of a whole split beside the sums and the number of "rows"."""
        return {}

    # --- from a config to a task ---

    @classmethod
    def load(cls, config: Config, workdir: Path | None, splits: Sequence[str]) -> Self:
        """The task with its data read, see `read`.

        Raises:
          UserError: bad config, unreadable data, examples longer than the system can score, or a run
            that has lost what `save` kept: learned from whatever data is at hand, ids mean others.
        """
        if workdir is not None and not cls.saved(workdir):
            advice = "the 'train' command that made it learns that again from the same data"
            raise UserError(f"{workdir} has lost its {cls.loads.kept}; {advice}")
        data, longer = treat_long_examples(
            cls.read(config, workdir, splits), config.batch, cls.extra_tokens
        )
        task = cls(config, data)  # type: ignore[call-arg]
        task.longer = longer
        models.check_longest(task, splits)
        return task

    def save(self, workdir: Path) -> None:
        """Keep with the run what its data alone would not give back."""
        self.data.save(workdir)
        if self.beginning is not None:
            self.beginning.keep_report(workdir)

    @classmethod
    def saved(cls, workdir: Path) -> bool:
        """Whether all that `save` keeps is there."""
        return cls.loads.saved(workdir)

    # --- training ---

    @functools.cached_property
    def beginning(self) -> Beginning | None:
        """The weights that training begins with; None if they are drawn."""
        if self.config.pretrained.path is None:
            return None
        from attnlab.tasks.pretrained import Beginning

        return Beginning(self)

    def check_pretrained(self) -> dict[str, str]:
        """See `Beginning.check`; {} where weights are drawn."""
        return {} if self.beginning is None else self.beginning.check()

    @functools.cached_property
    def shapes(self) -> Params:
        """The shapes of `init`, which is traced for them once."""
        return jax.eval_shape(self.init, jax.random.key(0))

    def init(self, key: jax.Array) -> Params:
        """Fresh float32 parameters; for the output bias see `models.with_output_bias`."""
        params = self.system.init(
            key, *models.stand_ins([self.columns[name] for name in self.inputs])
        )["params"]
        found = self.target_ids()
        return params if found is None else models.with_output_bias(self.config, params, *found)

    def apply(self, params: Params, batch: Batch, **how: Any) -> Tree:
        """What the system makes of a batch; `how` goes to `linen.Module.apply`."""
        read = (jnp.asarray(batch[name]) for name in self.inputs)
        return self.system.apply({"params": params}, *read, **how)

    @staticmethod
    def rngs(key: jax.Array) -> dict[str, jax.Array]:
        """The random streams of a step."""
        return {"dropout": key, "sample": jax.random.fold_in(key, 1)}

    def loss(
        self,
        params: Params,
        batch: Batch,
        key: jax.Array,
        carried: Tree = None,
        smoothing: Smoothing | None = None,
    ) -> tuple[jax.Array, Sums]:
        """The "loss" of `summed` with label smoothing and dropout; the other sums beside it. Terms of
        `auxiliary` are added to it, and stand beside it with "cross_entropy" under their own names.
        `smoothing` replaces the configured rate; it may be an array.
        """
        smoothing = self.config.training.label_smoothing if smoothing is None else smoothing
        watched = [] if self.auxiliary is None else self.auxiliary.collections
        apply = functools.partial(self.apply, params, batch, rngs=self.rngs(key))
        outputs, collected, seen = models.watched_pass(self.system, watched, apply)
        sums = self.summed(outputs, batch, smoothing) | seen
        if self.auxiliary is None or not watched:
            return sums.pop("loss"), sums
        added, terms = self.auxiliary(
            collected, carried=carried, **self.auxiliary_inputs(outputs, batch)
        )
        return sums["loss"] + added, {"cross_entropy": sums.pop("loss"), **sums, **terms}

    def carried(self) -> Tree:
        """What the loss carries from step to step, before the first; None for nothing."""
        return None if self.auxiliary is None else self.auxiliary.carried()

    def remembered(self) -> Tree:
        """What the loss continues from at the end of the batch before, a row for each row of the
        global batch, before the first; None for nothing.
        """
        return None

    def follow(self, carried: Tree, tracked: Tree) -> Tree:
        """What it carries on, given the sums that it tracked in a batch."""
        return None if self.auxiliary is None else self.auxiliary.follow(carried, tracked)

    def batches(self, multiple: int, seed: int | None = None) -> Batches:
        """This process's batch of each step, counted from 0, in the order of the configured seed or
        another one; its rows are divisible by `multiple` over all processes.

        Raises:
          UserError: rows that are not, nothing to read, or columns that are not as declared.
        """
        shared = {
            "process_index": jax.process_index(),
            "process_count": jax.process_count(),
            "multiple": multiple,
        }
        made = self.ordered(self.config.seed if seed is None else seed, shared)
        columns.check(self.columns, made(0), f"task {self.config.task}")
        return made

    def ordered(self, seed: int, shared: Mapping[str, Any]) -> Batches:
        """The batches of training; `shared` has what all kinds of batches take."""
        batch = self.config.batch
        assert isinstance(batch, Buckets)
        return TrainBatches(
            self.of_split("train"),
            **batch.arguments,
            seed=seed,
            things=self.data.things,
            **shared,
        )

    def notes(self, batches: Batches) -> list[str]:
        """What a person should know before training: sizes of the data, what is left out."""
        lines = [f"{split}: {self.data.about(split)}" for split in self.data.splits]
        lines += [f"train: {batches.note}"] if batches.note else []
        taken = [] if self.beginning is None else self.beginning.lines()
        return [*lines, *self.longer, *taken, *self.system.notes()]

    # --- scores ---

    def of_split(self, split: str) -> Examples:
        """The examples of a split."""
        return self.data.examples[split]  # type: ignore[attr-defined,no-any-return]

    def in_order(self, examples: Examples) -> list[tuple[np.ndarray, HostBatch]]:
        """All examples in batches, and which they are, see `evaluation_batches`."""
        batch = self.config.batch
        assert isinstance(batch, Buckets)
        widths = (*batch.buckets, batch.max_length)
        return evaluation_batches(examples, size=self.at_once, buckets=widths)

    def try_batch(self, batch: HostBatch) -> None:
        """Raise `UserError` where the system cannot score a batch; by shapes alone."""
        jax.eval_shape(self.sums, self.shapes, batch)

    def split_batches(self, split: str) -> Iterable[tuple[np.ndarray, HostBatch]]:
        """The batches of a split that `evaluate` scores, and the rows that each has."""
        return self.in_order(self.of_split(split))

    def evaluate(self, params: Params, split: str, rows: int = 0) -> dict[str, float]:
        """Deterministic scores of a split, "loss" first; nothing is dropped or smoothed. With
        `rows`, those of as many batches as have that many, from all over the split, without scores
        that need all of it.
        """
        return self.averaged(self.totals(self.batch_sums(params, split, rows), split, rows))

    def evaluate_stacked(self, params: Params, split: str, rows: int = 0) -> list[dict[str, float]]:
        """`evaluate` for each of several models, whose parameters have a leading axis."""
        found = self.batch_sums(params, split, rows, stacked=True)
        return [
            self.averaged(
                self.totals([jax.tree.map(lambda x, i=i: x[i], one) for one in found], split, rows)
            )
            for i in range(len(found[0]["loss"]))
        ]

    def batch_sums(
        self, params: Params, split: str, rows: int = 0, stacked: bool = False
    ) -> list[Totals]:
        """The sums of the batches of a split that are scored, fetched at the end; of several models
        if `stacked`.
        """
        score = self._score_all if stacked else self._score
        batches = models.part_of(self.split_batches(split), -(-rows // self.at_once))
        found = jax.device_get([(numbers >= 0, score(params, batch)) for numbers, batch in batches])
        return [
            {"rows": np.broadcast_to(real.sum(), sums["loss"].shape), **sums}
            for real, sums in found
        ]

    def totals(self, sums: Sequence[Totals], split: str, rows: int = 0) -> Totals:
        """Added up over batches, in float64; and what `split_totals` says, if all rows are in it."""
        added = {name: sum(np.asarray(one[name], np.float64) for one in sums) for name in sums[0]}
        return {**({} if rows else self.split_totals(split)), **added}

    def size(self, split: str) -> int:
        """The number of examples."""
        return self.data.size(split)

    def counts(self, split: str) -> Mapping[str, int]:
        """How many there are of what a measure is a share of (`Measure.of`), beside the examples:
        {"tokens": 1821}; {} for nothing.
        """
        return {}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Scores beyond `evaluate`, and for each example what goes to `outputs`; ({}, []) where
        there is nothing beyond.

        A score that is a table, such as a confusion of classes, is a mapping of row to (column to
        number).
        """
        return {}, []

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items | None:
        """What the scores of a split are made of, example by example, so that they can be
        resampled; None if nothing is.

        With every example once each measure in it comes out as `evaluate` or `score` gives it; one
        that does not is left out.

        Args:
          params: as for `score`.
          split: of the data.
          outputs: what `score` has given for the same parameters.
        """
        return None

    # --- answers and maps ---

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """What a system reads of lines that a person has typed; `UserError` for one that cannot be
        read.
        """
        raise NotImplementedError

    def answers(
        self, params: Params, asked: Examples, lines: Sequence[str]
    ) -> list[list[Response]]:
        """The answers to each of the examples that `examples_from_lines` has made of the lines, best first."""
        raise NotImplementedError

    def respond(self, params: Params, lines: Sequence[str]) -> list[list[Response]]:
        """The answers to each line, best first, none of them blank; `UserError` for a line it
        cannot read.
        """
        return self.answers(params, self.examples_from_lines(lines), lines) if lines else []

    def partial_answers(self, params: Params, line: str, index: int) -> Iterator[str]:
        """The answer to a line as far as it is written, again and again until it is whole.

        Raises:
          UserError: the task does not write texts, or not from left to right.
        """
        raise UserError(f"the task {self.config.task!r} does not write texts; leave out --stream")

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """Which of the lines have more than `limit` tokens, their ends counted; none where length
        is no matter.
        """
        return (
            np.flatnonzero(self.examples_from_lines(lines).lengths > limit).tolist()
            if lines
            else []
        )

    def map_examples(self, split: str, number: int) -> Sequence[Example]:
        """At most `number` examples of a split, those whose maps are drawn after training; each an
        `Example`.
        """
        raise NotImplementedError

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> Sequence[Example]:
        """What a person has typed as examples that `maps` can take: a second text that is missing
        is written by the system where it can; else `UserError`.
        """
        raise NotImplementedError

    def model_inputs(self, example: Any) -> tuple[Sequence[Any], dict[str, Axis]]:
        """What the system reads of an example, one row, and the sides of its maps by name."""
        raise NotImplementedError

    def maps(self, params: Params, example: Example) -> Maps:
        """Every attention map of an example, rows of hops numbered; what lies over its image."""
        read, axes = self.model_inputs(example)
        found = models.maps_of(self.system, params, read)
        hops = (one.weights.shape[1] for one in found.values() if one.query == "hops")
        numbered = [f"hop {number}" for number in range(1, max(hops, default=0) + 1)]
        sides = {**axes, "hops": Axis(numbered, "hops")}
        image = getattr(example, "image", None)
        looks = {} if image is None else over_image(image, found, sides)
        return Maps(found, sides, self.map_labels(axes), looks)

    def map_labels(self, axes: Mapping[str, Axis]) -> dict[str, Sequence[str]]:
        """The labels that are kept beside the arrays of maps, by their names in the file."""
        return {f"{name}_{one.kind}": one.labels for name, one in axes.items()}
