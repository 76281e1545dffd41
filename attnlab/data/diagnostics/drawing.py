"""What all generators of diagnostic texts share: splits that have no text in common."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from attnlab.data.asked import Row
from attnlab.data.generated import Sized, split_of
from attnlab.errors import UserError

_TRIES = 1000  # draws for one text of a split, a twentieth of which should do


@dataclass(frozen=True)
class Drawn(Sized):
    """Base of the generators: `examples`, `valid` and `test` texts, each drawn by `drawn`."""

    @property
    def group(self) -> str:
        """What the groups of its rows are called, "" for none."""
        return ""

    def drawn(self, draw: random.Random, split: str) -> Row:
        """One text; only the test split may have other lengths than the others."""
        raise NotImplementedError

    def asked(self, split: str) -> list[Row]:
        """The texts of `split`.

        Raises:
          UserError: there are too few different texts to keep the splits apart.
        """
        draw = random.Random(f"{type(self).__name__} {self.seed} {split}")
        return apart(lambda: self.drawn(draw, split), split, self.count(split))


def apart(drawn: Callable[[], Row], split: str, count: int) -> list[Row]:
    """The first `count` of the rows that `drawn` returns whose text belongs to `split`.

    Raises:
      UserError: hardly any does.
    """
    rows: list[Row] = []
    for _ in range(_TRIES * (count + 1)):
        row = drawn()
        if split_of(" ".join(row.words)) == split:
            rows.append(row)
            if len(rows) == count:
                return rows
    raise UserError(
        f"config.data: {_TRIES * (count + 1):,} draws gave {len(rows)} texts of the {split} split;"
        f" {count} are wanted. There are too few different texts: take longer ones, or more symbols"
    )


def power_of_two(number: int) -> int:
    """The least power of 2 that is not below a number of at least 1."""
    return 1 << (number - 1).bit_length()


def below(draw: random.Random, limit: int) -> int:
    """A uniform draw from 0 ... limit - 1, the same on every version of Python."""
    return int(draw.random() * limit)
