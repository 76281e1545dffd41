"""Made-up words to be said again, in their order, from the last to the first, or sorted: nothing to
learn but what to carry over, and where it is.

    g a q a c -> g a q a c          g a q a c -> c a q a g

How much that is stands in the config, as the number of words: the task of choice where the length
of the source is the question, or the order in which it is read.
"""

import random
import string
from dataclasses import dataclass
from typing import Any, Literal

from attnlab.data.generated import Alignment, Pair, Sized, below, check_lengths
from attnlab.errors import UserError

_FEWEST = 1000  # different texts, so that every split has some


@dataclass(frozen=True)
class Copying(Sized):
    """Texts of `shortest` to `longest` words, each length equally likely and each word one of
    `symbols` letters, and the same words again.

    A text's split follows from its own hash (90/5/5), so no text is in two splits, whatever the
    seeds. Short texts may occur more than once in a split. Positions of alignments are words
    (separated by blanks).

    Attributes:
      shortest: how few words a text may have.
      longest: how many words a text may have.
      symbols: different words.
      order: of the target's words, as in the source ("same"), from its last to its first
        ("reversed"), or that of the alphabet ("sorted"; repeated words stay).
      tested: words of the longest text of the test split, whose texts then have `longest` + 1 to
        `tested` words, to ask what longer texts than those of training do; 0 for the same lengths.

    Raises:
      UserError: `longest` below `shortest`, a number out of range, or too few different texts to
        keep the splits apart.
    """

    shortest: int = 1
    longest: int = 20
    symbols: int = 20
    order: Literal["same", "reversed", "sorted"] = "same"
    tested: int = 0

    limits = {"symbols": (2, len(string.ascii_lowercase))}

    def __post_init__(self) -> None:
        """Raises `UserError` for lengths out of order or too few possible texts, besides the checks
        of `Sized`.
        """
        super().__post_init__()
        check_lengths(1, self.shortest, self.longest)
        if self.tested and self.tested <= self.longest:
            raise UserError(
                f"config.data.tested={self.tested} must be 0 or above"
                f" config.data.longest={self.longest}"
            )
        if self.symbols**self.longest < _FEWEST:
            texts = f"{self.symbols}^{self.longest} different texts"
            raise UserError(
                f"config.data.longest={self.longest}: {texts} are too few, take more symbols or"
                " longer texts"
            )

    def pairs(self, split: str) -> list[Pair]:
        """Draws the examples of `split` as (source, target) texts: random letters (more of them in
        "test" if `tested` is set), and the same letters in the configured order.
        """
        draw = random.Random(f"copying {self.seed} {split}")
        shortest, longest = self.shortest, self.longest
        if split == "test" and self.tested:
            shortest, longest = self.longest + 1, self.tested

        def draw_words() -> list[str]:
            length = shortest + below(draw, longest - shortest + 1)
            return [string.ascii_lowercase[below(draw, self.symbols)] for _ in range(length)]

        texts = self.apart(split, draw_words, " ".join)
        return [(" ".join(words), " ".join(self._ordered(words))) for words in texts]

    def alignment(self, pair: Pair) -> Alignment:
        """Returns the set of (source position, target position) of each word and its copy in a pair
        of texts; raises `ValueError` if the target is not the words of the source in the configured
        order.
        """
        source, target = (text.split() for text in pair)
        if target != self._ordered(source):
            raise ValueError(f"{pair[1]!r} does not repeat {pair[0]!r} (order {self.order!r})")
        positions = sorted(range(len(source)), key=source.__getitem__)
        if self.order != "sorted":
            positions = self._ordered(list(range(len(source))))
        return frozenset(zip(positions, range(len(source)), strict=True))

    def _ordered(self, items: list[Any]) -> list[Any]:
        """Returns the items in the configured order: the same, reversed or sorted."""
        if self.order == "sorted":
            return sorted(items)
        return items if self.order == "same" else items[::-1]
