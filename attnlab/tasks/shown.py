"""What a task shows to a person: answers to typed lines, and maps of examples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnlab.data.columns import Examples
from attnlab.errors import UserError
from attnlab.tasks.protocol import Example, Params, Response, Sides, Tree, Typed

if TYPE_CHECKING:
    from attnlab.tasks.maps import Overlays


class Shown:
    """The part of `Task` that `generate` and `inspect` ask. Not a task by itself.

    Attributes:
      stored_labels: the labels stored with the arrays of maps: their name in the file, and the sides
        of which the first that an example has gives them.
      grid: rows and columns of the places of an image, the side "image"; None to infer them.
    """

    config: Any
    stored_labels: ClassVar[Mapping[str, Sequence[str]]] = {}
    grid: tuple[int, int] | None = None

    def examples_from_lines(self, lines: Sequence[str]) -> Examples:
        """The inputs of the system from typed lines; `UserError` for one that cannot be read."""
        raise NotImplementedError

    def answers(
        self, params: Params, examples: Examples, lines: Sequence[str]
    ) -> list[list[Response]]:
        """The answers to each example of `examples_from_lines(lines)`, best first."""
        raise NotImplementedError

    def respond(self, params: Params, lines: Sequence[str]) -> list[list[Response]]:
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

    def overlays(self, params: Params, example: Any) -> Overlays:
        """What lies over the image of an example beside its attention."""
        return {}, {}
