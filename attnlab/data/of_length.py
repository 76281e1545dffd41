"""The pairs of another source whose source side has a length in words: sentences of one length, to
ask what length does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnlab.config.registry import Part, made
from attnlab.data import SOURCES
from attnlab.errors import UserError


@dataclass(frozen=True)
class OfLength:
    """The pairs of `of` with `shortest` to `longest` words on the source side, in every split.

    Attributes:
      of: the source whose pairs are chosen from.
      shortest, longest: words of the source side, as white space separates them.
    """

    of: Part = "files"
    shortest: int = 1
    longest: int = 50

    parts: ClassVar = {"of": SOURCES}

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """The pairs of `split`; raises `UserError` as `of` does, for limits that hold nothing, and
        where no pair is left.
        """
        limits = f"config.data.shortest={self.shortest} and config.data.longest={self.longest}"
        if not 1 <= self.shortest <= self.longest:
            raise UserError(f"{limits}: expected 1 <= shortest <= longest")
        pairs: list[tuple[str, str]] = made(SOURCES, self.of)().pairs(split)
        lengths = [len(source.split()) for source, _ in pairs]
        remaining = [
            pair
            for pair, length in zip(pairs, lengths, strict=True)
            if self.shortest <= length <= self.longest
        ]
        if not remaining:
            summary = (
                f"its {len(pairs)} pairs have {min(lengths)} to {max(lengths)} words"
                if pairs
                else "it is empty"
            )
            raise UserError(f"{limits} leave no pair of the {split} split; {summary}")
        return remaining
