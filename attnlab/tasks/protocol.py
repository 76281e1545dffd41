"""The types that tasks exchange with commands and reports: examples and answers.

The tasks themselves derive from `attnlab.tasks.base.Task`. Nothing outside tasks and data knows the
parts of an example: code that shows one asks it for its text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import jax

from attnlab.training.step import Batch as Batch
from attnlab.training.step import Params as Params
from attnlab.training.step import Sums as Sums
from attnlab.training.step import Tree as Tree

Totals: TypeAlias = Mapping[str, Any]
"""Sums over a split, on the host, with `Task.split_totals`."""
Smoothing: TypeAlias = float | jax.Array
"""The rate of label smoothing; in the step its `training.arguments.Number`."""
Numbers: TypeAlias = Mapping[str, Tree]
"""Numbers of a config by dotted name, as arguments of a program."""
Rngs: TypeAlias = dict[str, jax.Array]
"""The random streams of a pass, by name."""
Scores: TypeAlias = dict[str, Any]
"""Numbers by name, or tables of them: row to column to number."""
Sides: TypeAlias = Mapping[str, Sequence[str]]
"""A word for each position of what maps lie between, by the name of the side ("source", "image")."""
Typed = tuple[str, str | None]
"""The one or two words of a command line that name an example: texts, or the name of a file for a
task of images."""


class Example(Protocol):
    """One example of a task, as commands and reports pass it on."""

    def shown(self) -> str:
        """The example as a line to read."""

    def record(self) -> dict[str, object]:
        """The example as JSON, stored next to its answer."""


class TextExample(NamedTuple):
    """A text, and the second one if the task has two."""

    source: str
    target: str | None = None

    def shown(self) -> str:
        """See `Example`."""
        return self.source if self.target is None else f"{self.source}  ->  {self.target}"

    def record(self) -> dict[str, object]:
        """See `Example`."""
        return {"source": self.source, "target": self.target}


@dataclasses.dataclass(frozen=True)
class Response:
    """An answer of a system to a line of text, with the score that sorts answers (as a rule a log
    probability).
    """

    text: str
    score: float


class Loaded(Protocol):
    """The data of a run, of the splits that were loaded.

    Attributes:
      kept: the word for the files of `save`.
      things: the word for the examples in messages about batches ("pairs").
    """

    kept: ClassVar[str]
    things: ClassVar[str]

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """The hash of the data by split."""

    @property
    def splits(self) -> Sequence[str]:
        """The names of the splits."""

    def size(self, split: str) -> int:
        """The number of examples."""

    def about(self, split: str) -> str:
        """A line about a split for the notes before training."""

    def save(self, workdir: Path) -> None:
        """Write the vocabulary or the like into the folder of a run."""

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether all files of `save` exist."""
