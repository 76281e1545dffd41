"""One side of the pairs of another source, as texts: a language model of the language that a
translation is into.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.config.registry import Part
from attnlab.data import SOURCES
from attnlab.data.generated import source_within


@dataclass(frozen=True)
class OneSide:
    """The source or the target texts of `of`, in their order.

    Attributes:
      of: a source of pairs.
      side: which of the two.
    """

    of: Part = "grammar"
    side: Literal["source", "target"] = "target"

    parts: ClassVar = {"of": SOURCES}

    def texts(self, split: str) -> list[str]:
        """The texts of `split`; raises `UserError` as `of` does, and where `of` has no pairs."""
        source = source_within(self.of, "pairs", "of which one side could be taken")
        return [pair[self.side == "target"] for pair in source.pairs(split)]
