"""What every task offers to training, to the commands, to sweeps and to reports; it knows its data,
its system and its loss.

A task is a class in the table TASKS: `check` and `load` are asked of the class, the rest of its one
object for a run. Axis letters: B rows of a batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import jax
from ml_collections import ConfigDict

from attnlab.config.nodes import Run
from attnlab.data.batching import Batch
from attnlab.records.items import Items
from attnlab.records.measures import Measure
from attnlab.systems.protocol import AttentionMap, System

Example = tuple[str, str | None]
"""A text, and the second one where the task has two."""


@dataclasses.dataclass(frozen=True)
class Response:
    """What a system answers to a line of text: the answer, and what it is sorted by (a log
    probability as a rule).
    """

    text: str
    score: float


class Task(Protocol):
    """What is learned.

    Attributes:
      systems: the kind of system that it trains, a class of `attnlab.systems.protocol`.
      schema: the class that describes its configs, see `attnlab.config.nodes`.
      reads: the method of a data source that it calls: "pairs", "texts" or "labelled".
      measures: the scores of a split, those of `evaluate` and `score` together, each with what is
        known of it: which way is better, its bounds, and of what it is a share. "min" or "max"
        alone says which way. Read them by `attnlab.records.measures.declared`. What is known stands
        in `results.json` and `valid.json` under "measures", with the number of items of each share.
      evaluated: those of them that `evaluate` gives, which are known while a model is trained.
      units: what stands beside a measure in a table; a measure without one may have its signature
        in the scores, as "<measure>_signature".
      examples: what the examples of a split are called in a table ("sentences").
      outputs: the file for what `score` gives beside numbers ("translations.txt"), one line an
        example.
      config: the whole config.
      data: of the splits that were asked for, with the hash of what was read in `fingerprints`, by
        split; `kind(config, data)` is the same task for another config of the same data.
      system: the model.
      carried, follow: see `attnlab.training.loop.Task`.
    """

    systems: ClassVar[type[System]]
    schema: ClassVar[type[Run]]
    reads: ClassVar[str]
    measures: ClassVar[Mapping[str, Measure | str]]
    evaluated: ClassVar[Sequence[str]]
    units: ClassVar[Mapping[str, str]]
    examples: ClassVar[str]
    outputs: ClassVar[str]
    config: ConfigDict
    data: Any
    system: Any
    carried: Callable[[], Any]
    follow: Callable[[Any, Any], Any]

    @staticmethod
    def check(config: ConfigDict) -> None:
        """Build all that needs no data, so that a bad config fails before any is read;
        `UserError`.
        """

    @classmethod
    def load(cls, config: ConfigDict, workdir: Path | None, splits: Sequence[str]) -> Task:
        """The task with the data of `splits` read; what was learned from data (a vocabulary) comes
        from `workdir` if that is given.
        """

    # --- training ---

    def init(self, key: jax.Array) -> Any:
        """Fresh float32 parameters."""

    def loss(
        self, params: Any, batch: Batch, key: jax.Array, carried: Any = None, smoothing: Any = None
    ) -> tuple[jax.Array, dict[str, Any]]:
        """The summed loss of a batch, and sums to report; "tokens" and "correct" are among them."""

    def weight(self, batch: Batch) -> jax.Array:
        """What the summed loss is divided by."""

    def batches(self, multiple: int, seed: int | None = None) -> Any:
        """This process's batch of each step, counted from 0; its rows are divisible by `multiple`
        over all processes.
        """

    def evaluate(self, params: Any, split: str) -> dict[str, float]:
        """Deterministic scores of a split, "loss" first."""

    def evaluate_stacked(self, params: Any, split: str) -> list[dict[str, float]]:
        """`evaluate` for each of several models, whose parameters have a leading axis."""

    def save(self, workdir: Path) -> None:
        """Keep with the run what its data alone would not give back."""

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether all that `save` keeps is there."""

    def notes(self, batches: Any) -> list[str]:
        """What a person should know about the data before training."""

    # --- what commands ask of a trained one ---

    def size(self, split: str) -> int:
        """The number of examples."""

    def counts(self, split: str) -> Mapping[str, int]:
        """How many there are of what a measure is a share of (`Measure.of`), beside the examples:
        {"tokens": 1821}; {} for nothing.
        """

    def items(self, params: Any, split: str, outputs: Sequence[str]) -> Items | None:
        """What the scores of a split are made of, example by example, so that they can be
        resampled; None where nothing is.

        With every example once each measure in it comes out as `evaluate` or `score` gives it; one
        that does not is left out.

        Args:
          params: as for `score`.
          split: of the data.
          outputs: what `score` has given for the same parameters.
        """

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        """Scores beyond `evaluate`, and for each example what goes to `outputs`; ({}, []) where
        there is nothing beyond.

        A score that is a table, such as a confusion of classes, is a mapping of row to (column to
        number).
        """

    def respond(self, params: Any, lines: Sequence[str]) -> list[list[Response]]:
        """The answers to each line, best first, none of them blank; `UserError` for a line it
        cannot read.
        """

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """Which of the lines have more than `limit` tokens; none where length is no matter."""

    def pictured(self, split: str, number: int) -> list[Example]:
        """At most `number` examples of a split, those whose maps are drawn after training."""

    def completed(self, params: Any, examples: Sequence[Example]) -> list[Example]:
        """The examples as `maps` can take them: a second text that is missing is written by the
        system where it can; else `UserError`.
        """

    def maps(
        self, params: Any, source: str, target: str | None
    ) -> tuple[dict[str, AttentionMap], dict[str, list[str]]]:
        """Every attention map of one example, [H,Tq,Tk] arrays, by name; and the tokens of the
        sequences they lie between.
        """
