"""Pairs of a key and a value, then a key again; the label is its value. How much can a state of a
given width hold?

    c3 a7 f0 ... a   ->   7

A pair is one word, so that it enters a memory as one; where key and value are two words
(`associations`), finding the value takes two looks. A recurrence has to keep all pairs in one
state, a tape keeps a slot for each.
"""

import math
import random
import string
from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.data.generated import Sized, below
from attnlab.errors import UserError


@dataclass(frozen=True)
class Lookup(Sized):
    """Texts of `pairs` words of a letter and a digit, no letter twice, and one of these letters;
    all digits are equally likely.

    A text's split follows from its own hash (90/5/5), so no text is in two splits, whatever the
    seeds.

    Attributes:
      pairs: of a text; one of its keys is asked for.
      keys, values: different ones.
      tested: which pair the texts of validation and test split ask for, "any", the "first" or the
        "last"; those of training ask for any.

    Raises:
      UserError: a number out of range.
    """

    pairs: int = 16
    keys: int = 20
    values: int = 10
    tested: Literal["any", "first", "last"] = "any"

    sentences: ClassVar[int] = 1
    limits = {"values": (2, len(string.digits))}

    def __post_init__(self) -> None:
        """Raises `UserError` for numbers of pairs and keys out of order or too few possible texts,
        besides the checks of `Sized`.
        """
        super().__post_init__()
        if not 1 <= self.pairs <= self.keys <= len(string.ascii_lowercase):
            limits = f"config.data.pairs={self.pairs} and config.data.keys={self.keys}"
            raise UserError(
                f"{limits}: expected 1 <= pairs <= keys <= {len(string.ascii_lowercase)}"
            )
        texts = math.perm(self.keys, self.pairs) * self.values**self.pairs * self.pairs
        if texts < 200:  # about ten of them for validation
            raise UserError(
                f"config.data.pairs={self.pairs}: {texts} texts are too few for three splits; take"
                " more pairs, keys or values"
            )

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """Draws the examples of `split` as ((text,), label): a text of pairs of a letter and a
        digit and then one of the letters (outside of "train" that of the pair that `tested` names),
        and as the label the digit of this letter.
        """
        draw = random.Random(f"lookup {self.seed} {split}")

        def draw_text() -> tuple[tuple[str, ...], str]:
            """Draws a text and its label; outside of training the last letter is that of the pair
            `tested` says.
            """
            keys = draw.sample(string.ascii_lowercase[: self.keys], self.pairs)
            values = [string.digits[below(draw, self.values)] for _ in keys]
            index = below(draw, self.pairs)
            if split != "train":
                index = {"any": index, "first": 0, "last": self.pairs - 1}[self.tested]
            pairs = [key + value for key, value in zip(keys, values, strict=True)]
            return (" ".join([*pairs, keys[index]]),), values[index]

        return list(self.apart(split, draw_text, lambda example: example[0][0]))

    def evidence(self, text: str) -> frozenset[int]:
        """Returns the set with the position, from 0, of the pair whose key is the text's last word."""
        *pairs, key = text.split()
        return frozenset(position for position, pair in enumerate(pairs) if pair[0] == key)
