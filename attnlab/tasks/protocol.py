"""What tasks exchange with commands and reports: examples and answers, and the methods of a task that
give them.

The tasks themselves derive from `attnlab.tasks.base.Task`. Nothing outside tasks and data knows the
parts of an example: code that shows one asks it for its text.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias

import jax
import numpy as np

from attnlab.data.columns import Examples
from attnlab.errors import UserError
from attnlab.training.step import Batch as Batch
from attnlab.training.step import Params as Params
from attnlab.training.step import Sums as Sums
from attnlab.training.step import Tree as Tree

if TYPE_CHECKING:
    from attnlab.tasks.maps import Overlays

Totals: TypeAlias = Mapping[str, Any]
"""Sums over a split, on the host, with `Task.split_totals`."""
Smoothing: TypeAlias = float | jax.Array
"""The rate of label smoothing; in the step its `training.arguments.Number`."""
Numbers: TypeAlias = Mapping[str, Tree]
"""Numbers of a config by dotted name, as arguments of a program."""
Rngs: TypeAlias = dict[str, jax.Array]
"""The random streams of a pass, by name."""
Loss: TypeAlias = tuple[jax.Array, Sums]
"""The summed loss of a batch, and sums to report."""
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


Responses: TypeAlias = list[list[Response]]
"""The answers to each of several lines, the best of a line first."""


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


class Shown:
    """The methods of `Task` that `generate` and `inspect` call. Not a task by itself.

    Attributes:
      stored_labels: the labels stored with the arrays of maps: their name in the file, and the sides
        of which the first that an example has gives them.
    """

    config: Any
    stored_labels: ClassVar[Mapping[str, Sequence[str]]] = {}

    @functools.cached_property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of the places of an image, the side "image"; None to infer them."""
        return None

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """The inputs of the system from typed lines; `UserError` for one that cannot be read."""
        raise NotImplementedError

    def answers(self, params: Params, examples: Examples, lines: Sequence[str]) -> Responses:
        """The answers to each example of `examples_from_lines(lines)`, best first."""
        raise NotImplementedError

    def respond(self, params: Params, lines: Sequence[str]) -> Responses:
        """The answers to each line, best first; no line is blank. `UserError` for a bad one."""
        return self.answers(params, self.examples_from_lines(lines), lines) if lines else []

    def partial_answers(self, params: Params, line: str, index: int) -> Iterator[str]:
        """Yield the answer to a line as it grows; `UserError` unless texts grow from the left."""
        raise UserError(f"the task {self.config.task!r} does not write texts; leave out --stream")

    def longer_than(self, limit: int, lines: Sequence[str]) -> list[int]:
        """The numbers of the lines with more than `limit` tokens, their ends counted."""
        lengths = self.examples_from_lines(lines).lengths if lines else np.zeros(0, int)
        return np.flatnonzero(lengths > limit).tolist()

    def map_examples(self, split: str, number: int) -> Sequence[Example]:
        """At most `number` examples of a split, whose maps are drawn after training."""
        raise NotImplementedError

    def examples_from_text(self, params: Params, typed: Sequence[Typed]) -> Sequence[Example]:
        """Examples for `maps` from typed texts; the system writes a missing one if it can."""
        raise NotImplementedError

    def model_inputs(self, example: Any) -> tuple[Sequence[Tree], Sides]:
        """The inputs of the system for an example, one row, and what its maps lie between."""
        raise NotImplementedError

    def overlays(self, params: Params, example: Any) -> "Overlays":
        """What lies over the image of an example beside its attention."""
        return {}, {}
