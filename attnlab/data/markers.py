"""Two numbers hidden in a long run of made-up words; the label is their sum modulo the number of
numbers.

    ba ko tu 3 ri ma ... vo 4 da   ->   2        (3 + 4 modulo 5)

Where they stand tells nothing and a sum cannot be read off one of them: a system that pools all states
can do it, a last state that has to carry both to the end finds it hard. A task of Lin et al.'s
kind, where evidence may stand anywhere in the text.
"""

import random
from dataclasses import dataclass
from typing import ClassVar

from attnlab.data.generated import Sized, below, check_lengths

SYLLABLES = [consonant + vowel for consonant in "bdfghjklmnprstvz" for vowel in "aeiou"]


@dataclass(frozen=True)
class Markers(Sized):
    """Texts of `shortest` to `longest` words, two of them numbers below `numbers`; all labels are
    equally likely.

    A text's split follows from its own hash (90/5/5), so no text is in two splits, whatever the
    seeds.

    Attributes:
      shortest: how few words a text may have, the numbers among them.
      longest: how many words a text may have, the numbers among them.
      numbers: how many different numbers there are, and so classes.
      words: how many different words there are beside the numbers.

    Raises:
      UserError: a length or a number out of range.
    """

    shortest: int = 30
    longest: int = 60
    numbers: int = 5
    words: int = 50

    sentences: ClassVar[int] = 1
    limits = {"numbers": (2, 100), "words": (2, len(SYLLABLES))}

    def __post_init__(self) -> None:
        """Raises `UserError` unless 4 <= `shortest` <= `longest`, besides the checks of `Sized`."""
        super().__post_init__()
        check_lengths(4, self.shortest, self.longest)

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """Draws the examples of `split` as ((text,), label), such that no text is in two splits."""
        draw = random.Random(f"markers {self.seed} {split}")
        return list(self.apart(split, lambda: self._draw_text(draw), lambda example: example[0][0]))

    def _draw_text(self, draw: random.Random) -> tuple[tuple[str, ...], str]:
        """Draws an example ((text,), label): a text of random syllables with two numbers at random
        positions, and their sum modulo `numbers`, as a str.
        """
        length = self.shortest + below(draw, self.longest - self.shortest + 1)
        words = [SYLLABLES[below(draw, self.words)] for _ in range(length)]
        positions = draw.sample(range(length), 2)
        first, second = (below(draw, self.numbers) for _ in positions)
        words[positions[0]], words[positions[1]] = str(first), str(second)
        return (" ".join(words),), str((first + second) % self.numbers)

    def evidence(self, text: str) -> frozenset[int]:
        """The places of the two numbers."""
        return frozenset(position for position, word in enumerate(text.split()) if word.isdecimal())
