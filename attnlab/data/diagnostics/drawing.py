"""What all generators of diagnostic texts share: they draw rows of words."""

import random
from dataclasses import dataclass

from attnlab.data.asked import Row
from attnlab.data.generated import Sized


@dataclass(frozen=True)
class Drawn(Sized):
    """Base of the generators: `examples`, `valid` and `test` texts, each drawn by `draw_row`."""

    @property
    def group(self) -> str:
        """What the groups of its rows are called, "" for none."""
        return ""

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """One text; only the test split may have other lengths than the others."""
        raise NotImplementedError

    def asked(self, split: str) -> list[Row]:
        """Draws the rows of `split`, no text of which is in two splits.

        Raises:
          UserError: there are too few different texts to keep the splits apart.
        """
        draw = random.Random(f"{type(self).__name__} {self.seed} {split}")
        return list(
            self.apart(split, lambda: self.draw_row(draw, split), lambda row: " ".join(row.words))
        )


def power_of_two(number: int) -> int:
    """The least power of 2 that is not below a number of at least 1."""
    return 1 << (number - 1).bit_length()
