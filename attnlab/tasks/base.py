"""The base class of all tasks.

A task joins data, a system, a loss and its scores. It declares the columns of its batches
(`columns`), the sums over a batch (`summed`, or `sums` as a whole) and the scores that follow from
them (`ratios`, `averaged`). Parameters, batches, evaluation and files of a run stand here; families
own answers: `tasks/texts.py`, `tokens.py`, `images.py` and `written.py`.

Axis letters: B rows of a batch.
"""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from attnlab.data import columns
from attnlab.data.batching import Batches, TrainBatches, evaluation_batches
from attnlab.data.columns import Batch as HostBatch
from attnlab.data.columns import Declared, Examples
from attnlab.data.dataset import treat_long_examples
from attnlab.data.settings import Buckets
from attnlab.decoding.rows import OnRows, by_example, evenly_spaced
from attnlab.errors import UserError
from attnlab.progress import patience
from attnlab.records.items import Items
from attnlab.records.measures import Measure
from attnlab.systems.protocol import System
from attnlab.tasks import models
from attnlab.tasks.auxiliary import Terms
from attnlab.tasks.metrics import with_metrics
from attnlab.tasks.pretrained import InitialWeights
from attnlab.tasks.protocol import Loaded, Loss, Numbers, Rngs, Scores, Shown, Smoothing, Totals
from attnlab.tasks.schemas import Settings
from attnlab.training.hyperparameters import SMOOTHING
from attnlab.training.step import Batch, Params, Sums, Tree

Config = TypeVar("Config", bound=Settings)
Data = TypeVar("Data", bound=Loaded)
Model = TypeVar("Model", bound=System)


class Task(Shown, Generic[Config, Data, Model]):
    """The learning problem of a run; one object each. `check` and `load` are class methods.

    Attributes:
      systems: the kind of system that it trains, a class of `attnlab.systems.protocol`.
      schema: the class that describes its configs, see `attnlab.tasks.schemas`.
      reads: the method of a data source that it calls; that of `loads`, unless it says another.
      loads: the kind of its data, an `attnlab.data.dataset.Dataset`.
      columns: the arrays of a batch, by name.
      inputs: those that the system reads, in the order of its arguments.
      measures: the scores of a split, those of `evaluate` and `score` together, each with its
        properties, or "min" or "max" alone; see `attnlab.records.measures.declared`.
      evaluated: the names of the measures that `evaluate` gives, during training too.
      ratios: of each score that is one sum over another, the names of the two.
      target_column: the column whose numbers above 0 are the targets, for `weight`.
      units: those of other scores in tables, else "<measure>_signature" of scores.
      examples: the word for the examples of a split in tables ("sentences").
      outputs: the file of what `score` gives besides numbers, one line an example.
      item: the unit of the sum "tokens" of a batch, for the progress of a run.
      extra_tokens: tokens that a row has on top of those of its text.
      at_once: rows of a batch that is not trained on.
      jit: makes a program of a function of parameters and rows, which go where these lie.
      longer: a line for each split about its examples longer than `batch.max_length`.
      config, data, system, auxiliary: settings, loaded splits, model, terms added to the loss or None.
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
    ratios: Mapping[str, tuple[str, str]] = {}
    target_column: ClassVar[str] = "label"
    units: ClassVar[Mapping[str, str]] = {}
    examples: ClassVar[str] = "examples"
    outputs: ClassVar[str] = ""
    item: ClassVar[str] = "tok"
    extra_tokens: ClassVar[int] = 0
    at_once: int = 64
    jit = OnRows
    longer: Sequence[str] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "reads" not in vars(cls) and (method := getattr(vars(cls).get("loads"), "method", "")):
            cls.reads = method

    def __init__(
        self, config: Config, data: Data, system: Model, auxiliary: "Terms | None" = None
    ) -> None:
        """Stores its arguments, checks the class's `ratios`, and makes the scoring programs."""
        self.config, self.data, self.system, self.auxiliary = config, data, system, auxiliary
        models.check_ratios(type(self))
        score = functools.partial(self.sums, smoothing=0.0)
        self._score, self._score_all = self.jit(score), jax.jit(jax.vmap(score, in_axes=(0, None)))

    # --- what a task defines ---

    @classmethod
    def check(cls, config: Config) -> None:
        """Raise `UserError` for a config that cannot be built; reads no data."""
        raise NotImplementedError

    @classmethod
    def read(cls, config: Config, workdir: Path | None, splits: Sequence[str]) -> Data:
        """The data of `splits`, of the class `loads`; what was learned is that of `workdir`.

        Raises:
          UserError: see `Dataset.load`.
        """
        load: Callable[..., Data] = cls.loads.load  # type: ignore[attr-defined]
        vocabulary, run = getattr(config, "vocabulary", None), config.pretrained.run
        options = cls.data_options(config)
        return load(config.data, vocabulary, workdir, splits, run, **options)

    @classmethod
    def data_options(cls, config: Config) -> Mapping[str, object]:
        """The fields of its kind of data that the config decides."""
        return {}

    def summed(self, outputs: Tree, batch: Batch, smoothing: Smoothing) -> Sums:
        """Sums over the real rows of a batch: "loss", and others such as "tokens" and "correct"."""
        raise NotImplementedError

    def averaged(self, totals: Totals) -> dict[str, float]:
        """The scores `evaluated` of a split, "loss" first, from its sums and `split_totals`: the
        `ratios`, and "perplexity", the exponential of the loss.
        """
        scores = models.ratio_scores(self.ratios, totals)
        if "perplexity" in self.evaluated:
            scores["perplexity"] = float(np.exp(scores["loss"]))
        return {name: scores[name] for name in self.evaluated if name in scores}

    def weight(self, batch: Batch) -> jax.Array:
        """The divisor of the summed loss: how many targets there are, in `target_column`."""
        return (jnp.asarray(batch[self.target_column]) > 0).sum().astype(jnp.float32)

    # --- what a task may define ---

    def sums(
        self, params: Params, batch: Batch, smoothing: Smoothing = 0.0, rngs: Rngs | None = None
    ) -> Sums:
        """The sums that scores are computed from; those of `summed` by default."""
        return self.summed(self.apply(params, batch, rngs=rngs), batch, smoothing)

    def auxiliary_inputs(self, outputs: Tree, batch: Batch) -> dict[str, Tree]:
        """Arguments of `auxiliary` besides what a pass collected."""
        raise NotImplementedError

    def target_ids(self) -> tuple[np.ndarray, int] | None:
        """The target ids of training and the size of their vocabulary, for the output bias."""
        return None

    def split_totals(self, split: str) -> dict[str, int]:
        """Numbers of a whole split for `averaged`, besides the sums and the number of "rows"."""
        return {}

    # --- from a config to a task ---

    @classmethod
    def load(cls, config: Config, workdir: Path | None, splits: Sequence[str]) -> Self:
        """Reads the data of `splits` and returns the task, with long examples treated as
        `batch.longer` says; `workdir` is the run whose saved files are used (None for a new run);
        raises `UserError` if they are lost, or config or data do not fit.

        Raises:
          UserError: a bad config, unreadable data, examples longer than the system can score, a
            run without the files of `save`: a vocabulary learned anew would have other ids.
        """
        if workdir is not None and not cls.saved(workdir):
            advice = "the 'train' command that made it learns that again from the same data"
            raise UserError(f"{workdir} has lost its {cls.loads.kept}; {advice}")
        data = cls.read(config, workdir, splits)
        data, longer = treat_long_examples(data, config.batch, cls.extra_tokens)
        task = cls.from_data(config, data)
        with_metrics(task)
        task.longer = longer
        models.check_longest(task, splits)
        return task

    @classmethod
    def from_data(cls, config: Config, data: Data) -> Self:
        """The task with data that is read; every class of a task takes these two alone."""
        return cls(config, data)  # type: ignore[call-arg]

    def save(self, workdir: Path) -> None:
        """Write the vocabulary or the like into the folder of the run."""
        self.data.save(workdir)
        if self.beginning is not None:
            self.beginning.keep_report(workdir)

    @classmethod
    def saved(cls, workdir: Path) -> bool:
        """Whether all files of `save` exist."""
        return cls.loads.saved(workdir)

    # --- training ---

    @functools.cached_property
    def beginning(self) -> InitialWeights | None:
        """Returns the `InitialWeights` that read pretrained weights, or None if there are none."""
        if self.config.pretrained.path is None:
            return None
        return InitialWeights(self)

    def check_pretrained(self) -> dict[str, str]:
        """See `InitialWeights.check`; {} where weights are drawn."""
        return {} if self.beginning is None else self.beginning.check()

    @functools.cached_property
    def traced_init(self) -> jax.stages.Traced:
        """`init`, traced once for its shapes and for its values."""
        return jax.jit(self.init).trace(jax.random.key(0))

    @functools.cached_property
    def shapes(self) -> Params:
        """The shapes of `init`."""
        return self.traced_init.out_info

    def init(self, key: jax.Array) -> Params:
        """Draws float32 parameters from `key`; the output bias is that of `with_output_bias` (the
        log frequencies of targets where the config asks for them) if the task has `target_ids`.
        """
        params: Params = self.system.init(key, *self.init_inputs())["params"]
        if (targets := self.target_ids()) is None:
            return params
        from attnlab.tasks.tokens import with_output_bias

        return with_output_bias(self.config, params, *targets)

    def init_inputs(self) -> Sequence[jax.Array]:
        """What the system reads when parameters are drawn: ones, as few as its columns allow."""
        return models.stand_ins([self.columns[name] for name in self.inputs])

    def apply(self, params: Params, batch: Batch, **options: Tree) -> Tree:
        """The outputs of the system for a batch; `options` goes to `linen.Module.apply`."""
        inputs = (jnp.asarray(batch[name]) for name in self.inputs)
        return self.system.apply({"params": params}, *inputs, **options)

    @staticmethod
    def rngs(key: jax.Array) -> dict[str, jax.Array]:
        """The random streams of a step."""
        return {"dropout": key, "sample": jax.random.fold_in(key, 1)}

    def loss(
        self,
        params: Params,
        batch: Batch,
        key: jax.Array,
        *,
        carried: Tree = None,
        numbers: Numbers | None = None,
    ) -> Loss:
        """Returns two things: the summed training loss of a batch, with label smoothing, dropout
        and the terms of `auxiliary`, and a dict of the other sums, among them, where there are any,
        these terms with "cross_entropy", and the statistics of batch norms; `numbers` replace those
        of the config.
        """
        smoothing = self.smoothing(numbers)
        collections = [] if self.auxiliary is None else self.auxiliary.collections
        apply = functools.partial(self.apply, params, batch, rngs=self.rngs(key))
        outputs, collected, statistics = models.watched_pass(self.system, collections, apply)
        sums = self.summed(outputs, batch, smoothing) | statistics
        if self.auxiliary is None or not collections:
            return sums.pop("loss"), sums
        inputs = self.auxiliary_inputs(outputs, batch)
        added, terms = self.auxiliary(collected, carried=carried, numbers=numbers, **inputs)
        return sums["loss"] + added, {"cross_entropy": sums.pop("loss"), **sums, **terms}

    def smoothing(self, numbers: Numbers | None) -> Smoothing:
        """The rate of label smoothing."""
        return (numbers or {}).get(SMOOTHING, self.config.training.label_smoothing)

    def carried(self) -> Tree:
        """The values that the loss carries from step to step, before the first one; or None."""
        return None if self.auxiliary is None else self.auxiliary.carried()

    def remembered(self) -> Tree:
        """The state before the first step, a row for each row of the global batch; or None."""
        return None

    def follow(self, carried: Tree, tracked: Tree) -> Tree:
        """The values carried to the next step, given the sums tracked in this one."""
        return None if self.auxiliary is None else self.auxiliary.follow(carried, tracked)

    def batches(self, multiple: int, seed: int | None = None) -> Batches:
        """Returns this process's training batches as a function of the step, in the order of a seed
        (else the configured one), of which it makes the first to check its columns; raises
        `UserError` unless the rows over all processes are divisible by `multiple`.

        Raises:
          UserError: rows that are not, nothing to read, or columns that are not as declared.
        """
        shared = {"process_index": jax.process_index(), "process_count": jax.process_count()}
        shared["multiple"] = multiple
        batches = self.ordered(self.config.seed if seed is None else seed, shared)
        columns.check(self.columns, batches(0), f"task {self.config.task}")
        return batches

    def ordered(self, seed: int, shared: Mapping[str, int]) -> Batches:
        """The batches of training; `shared` has the arguments of all kinds of batches."""
        batch = self.config.batch
        assert isinstance(batch, Buckets)
        options = {**batch.arguments, **shared, "things": self.data.things}
        return TrainBatches(self.of_split("train"), seed=seed, **options)

    def notes(self, batches: Batches) -> list[str]:
        """Lines to read before training: sizes of the data, examples that are left out."""
        lines = [f"{split}: {self.data.about(split)}" for split in self.data.splits]
        lines += [f"train: {batches.note}"] if batches.note else []
        pretrained = [] if self.beginning is None else self.beginning.lines()
        return [*lines, *self.longer, *pretrained, *self.system.notes()]

    # --- scores ---

    def of_split(self, split: str) -> Examples:
        """The examples of a split."""
        return self.data.examples[split]  # type: ignore[attr-defined,no-any-return]

    def in_order(self, examples: Examples) -> list[tuple[np.ndarray, HostBatch]]:
        """All examples in batches with their numbers, see `evaluation_batches`."""
        batch = self.config.batch
        assert isinstance(batch, Buckets)
        widths = (*batch.buckets, batch.max_length)
        return evaluation_batches(examples, size=self.at_once, buckets=widths)

    def try_batch(self, batch: HostBatch) -> None:
        """Raise `UserError` if the system cannot score a batch; by shapes alone."""
        jax.eval_shape(self.sums, self.shapes, batch)

    def split_batches(self, split: str) -> Iterable[tuple[np.ndarray, HostBatch]]:
        """The batches of a split that `evaluate` scores, with the numbers of their rows."""
        return self.in_order(self.of_split(split))

    def evaluate(self, params: Params, split: str, rows: int = 0) -> dict[str, float]:
        """Deterministic scores of a split, "loss" first; no dropout or smoothing. With `rows`,
        those of batches with that many rows, from all over it, without scores that need all of it.
        """
        return self.averaged(self.totals(self.batch_sums(params, split, rows), split, rows))

    def evaluate_stacked(self, params: Params, split: str, rows: int = 0) -> list[dict[str, float]]:
        """Returns a list with a dict of scores, see `evaluate`, for each model of `params`, whose
        arrays have the models on a first axis.
        """
        sums = self.batch_sums(params, split, rows, stacked=True)
        return [
            self.averaged(self.totals(jax.tree.map(lambda x, i=i: x[i], sums), split, rows))
            for i in range(len(sums[0]["loss"]))
        ]

    @patience("scoring a split")
    def batch_sums(
        self, params: Params, split: str, rows: int = 0, stacked: bool = False
    ) -> list[Totals]:
        """The sums of each scored batch, fetched at the end; of several models if `stacked`."""
        score = self._score_all if stacked else self._score
        batches = evenly_spaced(self.split_batches(split), -(-rows // self.at_once))
        sums = jax.device_get([(numbers >= 0, score(params, batch)) for numbers, batch in batches])
        return [{"rows": np.broadcast_to(real.sum(), x["loss"].shape), **x} for real, x in sums]

    def totals(self, sums: Sequence[Totals], split: str, rows: int = 0) -> Totals:
        """The sums over all batches, in float64; with `split_totals`, if all rows are in them."""
        added = {name: sum(np.asarray(x[name], np.float64) for x in sums) for name in sums[0]}
        return {**({} if rows else self.split_totals(split)), **added}

    def outputs_of(self, params: Params, examples: Examples) -> np.ndarray:
        """The system's outputs for N examples, as large for each, [N,...] float32."""
        return np.asarray(by_example(self._outputs, params, self.in_order(examples)))

    @functools.cached_property
    def _outputs(self) -> Callable[[Params, Batch], jax.Array]:
        return self.jit(lambda params, rows: self.apply(params, rows).astype(jnp.float32))

    def size(self, split: str) -> int:
        """The number of examples."""
        return self.data.size(split)

    def counts(self, split: str) -> Mapping[str, int]:
        """The number of items that measures count (`Measure.of`) besides examples, by name."""
        return {}

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Returns scores beyond `evaluate`, with tables {row: {column: number}}, and output lines."""
        return {}, []

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> "Items | None":
        """Numbers of each example from which scores of a split can be resampled, or None; `outputs`
        are those of `score`. A measure that they do not give exactly is left out.
        """
        return None
