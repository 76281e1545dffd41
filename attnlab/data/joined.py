"""Pairs of another source joined end to end: short sentences become texts of many lengths.

A system trained on sentences of six words has never had to tell the fifteenth from the third; on
joined ones it has, without any new data (Kondo et al., "Sentence Concatenation Approach to Data
Augmentation for Neural Machine Translation", NAACL SRW 2021, who join two).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from attnlab.config.registry import Part, made
from attnlab.data import SOURCES
from attnlab.errors import UserError

MOST = 10**7  # pairs that copies may add up to


@dataclass(frozen=True)
class Joined:
    """Training pairs of `of`, shuffled and dealt into runs of 1 to `most`, each joined by blanks;
    other splits stay as they are.

    Attributes:
      of: the source whose pairs are joined.
      most: pairs in the longest runs; all lengths of run are equally likely.
      copies: times every pair occurs, in another run each time.
      seed: of shuffling and dealing.
    """

    of: Part = "table"
    most: int = 4
    copies: int = 1
    seed: int = 0

    parts: ClassVar = {"of": SOURCES}

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """The pairs of `split`; raises `UserError` as `of` does, and for `most` or `copies` below
        1, or too many copies.
        """
        if min(self.most, self.copies) < 1:
            raise UserError(
                f"config.data.most={self.most} and config.data.copies={self.copies} must be at"
                " least 1"
            )
        pairs: list[tuple[str, str]] = made(SOURCES, self.of)().pairs(split)
        if split != "train":
            return pairs
        if self.copies * len(pairs) > MOST:
            raise UserError(
                f"config.data.copies={self.copies} of {len(pairs):,} pairs are more than {MOST:,};"
                " take fewer"
            )
        rng, joined = random.Random(self.seed), []
        for _ in range(self.copies):
            order, begin = rng.sample(pairs, len(pairs)), 0
            while begin < len(order):
                end = begin + rng.randint(1, self.most)
                joined.append(
                    (
                        " ".join(pair[0] for pair in order[begin:end]),
                        " ".join(pair[1] for pair in order[begin:end]),
                    )
                )
                begin = end
        return joined
