"""Words to be said again: pairs of another source in one row, words among blanks, and what followed
the last time.
"""

import random
from dataclasses import dataclass
from typing import ClassVar

from attnlab.config.registry import Part, made
from attnlab.data import SOURCES
from attnlab.data.asked import Row
from attnlab.data.diagnostics.drawing import Drawn, power_of_two
from attnlab.data.generated import below, within

SAY, END, BLANK, TRIGGER = "=", ".", "_", "!"


@dataclass(frozen=True)
class InARow:
    """The pairs of another source in one row: a source, "=", and its target, which is asked for
    word by word, its end "." too.

        g a q = q a g          at "=" the answer is q, at q a, at a g, at g "."

    With `copying` this is the copying of words, from the last to the first, or in order of the
    alphabet, by a decoder alone. Groups are the numbers of words of the sources, so the accuracy
    stands by length; `copying.tested` asks for longer ones than those of training.

    Attributes:
      of: the source of the pairs; words are what white space separates.
    """

    of: Part = "copying"

    parts: ClassVar = {"of": SOURCES}

    group = "length"

    def asked(self, split: str) -> list[Row]:
        """Reads the pairs of `split` from the other source and makes a row of each, whose answers
        are its target words.
        """
        return [
            _row(source.split(), target.split())
            for source, target in made(SOURCES, self.of)().pairs(split)
        ]


def _row(source: list[str], target: list[str]) -> Row:
    """Makes the row of a list of source words, "=" and a list of target words, whose answers are
    each target word at the word before it and "." at the last.
    """
    answers = ("",) * len(source) + (*target, END)
    return Row((*source, SAY, *target), answers, (len(source),) * (len(target) + 1))


@dataclass(frozen=True)
class SelectiveCopying(Drawn):
    """Words among blanks, to be said again in their order behind the text.

        _ d _ _ b _ a = = =          answers d, b, a at the last words

    A mixer whose weights do not depend on what it reads can copy from fixed places (`scattered =
    False`: the words come first), but not from random ones. Groups are the numbers of the answers,
    counted from 1.

    Source: A. Gu, T. Dao, "Mamba", 2023, section 3.1; the fixed form S. Hochreiter, J. Schmidhuber,
    1997, and M. Arjovsky et al., "Unitary Evolution Recurrent Neural Networks", ICML 2016.

    Attributes:
      blanks: of a text.
      words: to be copied.
      symbols: different words.
      scattered: whether the words stand anywhere among the blanks, or before them.
      tested: blanks of the texts of the test split; 0 for `blanks`.

    Raises:
      UserError: a number out of range.
    """

    blanks: int = 32
    words: int = 8
    symbols: int = 14
    scattered: bool = True
    tested: int = 0

    group = "place"
    limits = {"blanks": (0,), "words": (1,), "symbols": (2,), "tested": (0,)}

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """Draws a `Row`: random words among blanks (before the blanks unless `scattered`; "test"
        has `tested` blanks if set), then "=" once per word, with these words in order as the
        answers and 1, 2, ... as their groups. See `Drawn.draw_row`.
        """
        blanks = (self.tested or self.blanks) if split == "test" else self.blanks
        symbols = [f"s{below(draw, self.symbols)}" for _ in range(self.words)]
        places = range(blanks + self.words)
        chosen = sorted(draw.sample(places, self.words)) if self.scattered else places[: self.words]
        text = [BLANK] * len(places)
        for place, word in zip(chosen, symbols, strict=True):
            text[place] = word
        return Row(
            (*text, *[SAY] * self.words),
            ("",) * len(text) + tuple(symbols),
            tuple(range(1, self.words + 1)),
        )


@dataclass(frozen=True)
class Induction(Drawn):
    """What followed the trigger the last time: random words, a trigger somewhere among them, and
    the trigger again at the end.

        s4 s1 s1 ! s9 s2 s0 s4 !          the answer at the last word is s9

    Two layers of attention solve it: one joins each word with the one before, the other looks for
    the trigger. Groups are distances between the two triggers, rounded up to powers of 2.

    Source: C. Olsson et al., "In-context Learning and Induction Heads", 2022; in this form A. Gu,
    T. Dao, "Mamba", 2023, section 4.1.2.

    Attributes:
      length: words before the last trigger.
      symbols: different words.
      tested: words before the last trigger in the test split; 0 for `length`.

    Raises:
      UserError: a number out of range.
    """

    length: int = 64
    symbols: int = 16
    tested: int = 0

    group = "distance"
    limits = {"length": (2,), "tested": (0,), "symbols": (2,)}

    def __post_init__(self) -> None:
        """Raises `UserError` unless `tested` is 0 or at least 2, besides the checks of `Sized`."""
        super().__post_init__()
        if self.tested:
            within("tested", self.tested, 2)

    def draw_row(self, draw: random.Random, split: str) -> Row:
        """Draws a `Row`: random words (`tested` of them in "test" if set) with the trigger at a
        random position and again at the end, where the answer is the word after the first trigger;
        its group is their distance, rounded up to a power of 2. See `Drawn.draw_row`.
        """
        length = (self.tested or self.length) if split == "test" else self.length
        words = [f"s{below(draw, self.symbols)}" for _ in range(length)]
        first = below(draw, length - 1)
        words[first] = TRIGGER
        answer = words[first + 1]
        return Row((*words, TRIGGER), ("",) * length + (answer,), (power_of_two(length - first),))
