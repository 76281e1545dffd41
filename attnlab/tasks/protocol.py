"""The types that tasks exchange with commands and reports: examples, answers, attention maps with
their axes.

The tasks themselves derive from `attnlab.tasks.base.Task`. Nothing outside tasks and data knows the
parts of an example: code that shows one asks it for its text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np

from attnlab.systems.protocol import AttentionMap
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
class Look:
    """Attention maps over an image.

    Attributes:
      image: [H,W,C] uint8.
      weights: [R,h,w] float32, each a part of the image.
      rows: names of the R attention maps.
    """

    image: np.ndarray
    weights: np.ndarray
    rows: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Response:
    """An answer of a system to a line of text, with the score that sorts answers (as a rule a log
    probability).
    """

    text: str
    score: float


@dataclasses.dataclass(frozen=True)
class Axis:
    """The rows or the columns of a map.

    Attributes:
      labels: a word for each position, for pictures.
      kind: the kind of the positions: "tokens", "hops", "places", "patches", "regions", ...
      grid: rows and columns, where positions lie row by row over an image; else None.
    """

    labels: Sequence[str]
    kind: str = "tokens"
    grid: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Maps:
    """Every attention map of one example.

    Attributes:
      weights: by name, [H,Tq,Tk] arrays, each with the names of its two axes.
      axes: by these names.
      labels: labels stored with the arrays, by their names in the file.
      looks: maps drawn over an image, by name: those of `weights`, instead of their matrices, or
        others.
      gates: arrays of gates by name, stored with the maps.
    """

    weights: Mapping[str, AttentionMap]
    axes: Mapping[str, Axis]
    labels: Mapping[str, Sequence[str]]
    looks: Mapping[str, Look] = dataclasses.field(default_factory=dict)
    gates: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def rows(self, name: str) -> Sequence[str]:
        """The labels of the Tq queries of the map `name`."""
        return self._labels(name, self.weights[name].query, -2)

    def columns(self, name: str) -> Sequence[str]:
        """The labels of the Tk keys of the map `name`."""
        return self._labels(name, self.weights[name].key, -1)

    def _labels(self, name: str, side: str, axis: int) -> Sequence[str]:
        """The labels of a side; numbers if it has none, as the places of an image."""
        if side in self.axes:
            return self.axes[side].labels
        return list(map(str, range(self.weights[name].weights.shape[axis])))


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
