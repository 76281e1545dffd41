"""What a task is given and what it gives: examples that a person can see, answers, and maps with what
they lie between.

The tasks themselves derive from `attnlab.tasks.base.Task`. Nothing outside tasks and data knows what
an example is made of: code that shows one asks it for its words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np

from attnlab.systems.protocol import AttentionMap

Params: TypeAlias = Mapping[str, Any]
"""Parameters by the names of modules, as linen has them: arrays, or such mappings again."""
Tree: TypeAlias = Any
"""Arrays in whatever nesting: what a system makes of a batch, or what it remembers."""
Batch: TypeAlias = Mapping[str, jax.Array | np.ndarray]
Sums: TypeAlias = dict[str, jax.Array]
"""Summed over a batch, by name."""
Totals: TypeAlias = Mapping[str, Any]
"""The same over a split, on the host; and what a task knows of the split."""
Smoothing: TypeAlias = float | jax.Array
"""The rate of label smoothing."""
Rngs: TypeAlias = dict[str, jax.Array]
"""The random streams of a pass, by name."""
Scores: TypeAlias = dict[str, Any]
"""Numbers by name, or tables of them: row to column to number."""
Typed = tuple[str, str | None]
"""What a person types to name an example: one word of a command line, or two. For tasks of texts
these are the texts; a task of images may take the name of a file."""


class Example(Protocol):
    """One example of a task, as commands and reports pass it on."""

    def shown(self) -> str:
        """A line for a person."""

    def record(self) -> dict[str, Any]:
        """What is kept of it beside what was answered, as JSON."""


class TextExample(NamedTuple):
    """A text, and the second one where the task has two."""

    source: str
    target: str | None = None

    def shown(self) -> str:
        """See `Example`."""
        return self.source if self.target is None else f"{self.source}  ->  {self.target}"

    def record(self) -> dict[str, Any]:
        """See `Example`."""
        return {"source": self.source, "target": self.target}


@dataclasses.dataclass(frozen=True)
class Look:
    """Where a system looks in an image.

    Attributes:
      image: [H,W,C] uint8.
      weights: [R,h,w] float32, each a part of the image.
      rows: what looks, R names.
    """

    image: np.ndarray
    weights: np.ndarray
    rows: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Response:
    """What a system answers to a line of text: the answer, and what it is sorted by (a log
    probability as a rule).
    """

    text: str
    score: float


@dataclasses.dataclass(frozen=True)
class Axis:
    """What the rows or the columns of a map stand for.

    Attributes:
      labels: a word for each position, for pictures.
      kind: what the positions are: "tokens", "hops", "places", "patches", "regions", ...
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
      labels: what is stored beside the arrays, by the name in the file.
      looks: what is drawn over an image, by name: a map of `weights`, then instead of its matrix,
        or something else.
      gates: arrays of gates by name, stored beside the maps.
    """

    weights: Mapping[str, AttentionMap]
    axes: Mapping[str, Axis]
    labels: Mapping[str, Sequence[str]]
    looks: Mapping[str, Look] = dataclasses.field(default_factory=dict)
    gates: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def rows(self, name: str) -> Sequence[str]:
        """The labels of the Tq positions that look, in the map `name`."""
        return self._labels(name, self.weights[name].query, -2)

    def columns(self, name: str) -> Sequence[str]:
        """The labels of the Tk positions that are looked at."""
        return self._labels(name, self.weights[name].key, -1)

    def _labels(self, name: str, side: str, axis: int) -> Sequence[str]:
        """Those of a side; numbers where it has none, as the places of an image."""
        if side in self.axes:
            return self.axes[side].labels
        return list(map(str, range(self.weights[name].weights.shape[axis])))


class Loaded(Protocol):
    """The data of a run, of the splits that were asked for.

    Attributes:
      kept: what `save` keeps, in words.
      things: what the examples are called where batches are told of ("pairs").
    """

    kept: ClassVar[str]
    things: ClassVar[str]

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """The hash of what was read, by split."""

    @property
    def splits(self) -> Sequence[str]:
        """Which there are."""

    def size(self, split: str) -> int:
        """The number of examples."""

    def about(self, split: str) -> str:
        """What a person should know of a split, in a line."""

    def save(self, workdir: Path) -> None:
        """Keep with a run what the data alone would not give back."""

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether all that `save` keeps is there."""
