"""Sequences of keys and values, every sequence with a pairing of its own: what a language model can
know only by looking back.

    c 3 a 7 c 3 f 0 a 7 ...

A key that occurs again has the value it had before; a recurrence of few units cannot hold all pairs
of a sequence, one look at the place where the key stood before answers at once. (The associative
recall of J. Ba et al., "Using Fast Weights to Attend to the Recent Past", NIPS 2016, arXiv
1610.06258, asked for at every key instead of once at the end.)
"""

import random
import string
from dataclasses import dataclass

from attnlab.data import SPLITS
from attnlab.data.generated import Sized, below, check_even


@dataclass(frozen=True)
class Associations(Sized):
    """Texts of `length` words, a key (a letter) and its value (a digit) in turn; each text draws
    which value a key has, and then its keys.

    All draws are uniform, so that a text is in two splits only by chance. A guess at a value is
    right in one of `values` cases.

    Attributes:
      length: words of a text, an even number: keys and values in turn.
      tested: words of a text of the test split, to test longer ones; 0 for `length`.
      keys: how many different keys there are.
      values: how many different values there are.

    Raises:
      UserError: a number out of range.
    """

    length: int = 40
    tested: int = 0
    keys: int = 10
    values: int = 10

    limits = {"keys": (1, len(string.ascii_lowercase)), "values": (1, len(string.digits))}

    def __post_init__(self) -> None:
        """Raises `UserError` unless `length` is an even number of at least 2 and `tested` an even
        number of at least 0, besides the checks of `Sized`.
        """
        super().__post_init__()
        check_even("length", self.length, 2)
        check_even("tested", self.tested, 0)

    def texts(self, split: str) -> list[str]:
        """Draws the texts of `split`, alternately keys and values, in "test" of `tested` words if
        that is set.
        """
        draw = random.Random(f"associations {self.seed} {SPLITS.index(split)}")
        length = (self.tested or self.length) if split == "test" else self.length
        return [self._text(draw, length) for _ in range(self.count(split))]

    def recalled(self, text: str) -> list[bool]:
        """Returns a bool for each word of a text of keys and values in turn, True for a value whose
        key has occurred before, else False.
        """
        earlier_keys: set[str] = set()
        mask = []
        for key in text.split()[::2]:
            mask += [False, key in earlier_keys]
            earlier_keys.add(key)
        return mask

    def _text(self, draw: random.Random, length: int) -> str:
        """Draws the value of every key, and then a text of `length` words, random keys each with
        its value.
        """
        values = [string.digits[below(draw, self.values)] for _ in range(self.keys)]
        keys = [below(draw, self.keys) for _ in range(length // 2)]
        return " ".join(f"{string.ascii_lowercase[key]} {values[key]}" for key in keys)
