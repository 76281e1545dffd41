"""Sources made of the pairs of another one: one side of them, with a text before each source, those of
one length, or joined end to end.
"""

import random
from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.config.registry import Part
from attnlab.data import SOURCES
from attnlab.data.generated import Pair, check_lengths, source_within
from attnlab.errors import UserError

MOST = 10**7  # pairs that copies may add up to


@dataclass(frozen=True)
class OneSide:
    """The source or the target texts of `of`, in their order: a language model of the language that a
    translation is into.

    Attributes:
      of: a source of pairs.
      side: which side of the pairs the texts are.
    """

    of: Part = "grammar"
    side: Literal["source", "target"] = "target"

    parts: ClassVar = {"of": SOURCES}

    def texts(self, split: str) -> list[str]:
        """Returns the source or the target texts of `split` of the other source; raises `UserError`
        as that does, or if it has no pairs.
        """
        pairs = source_within(self.of, "pairs", "of which one side could be taken").pairs(split)
        return [pair[self.side == "target"] for pair in pairs]


@dataclass(frozen=True)
class Prefixed:
    """The pairs of `of`, each source behind `prefix`, by which a model of several tasks knows what is
    asked (Raffel et al. 2020, section 2.4): "summarize: ".

    Attributes:
      of: a source of pairs.
      prefix: the text; a blank at its end stands between it and the source.
    """

    of: Part = "json"
    prefix: str = "summarize: "

    parts: ClassVar = {"of": SOURCES}

    def pairs(self, split: str) -> list[Pair]:
        """Returns the pairs of `split` of the other source, with `prefix` before each source text;
        raises `UserError` as that does, or if it has no pairs.
        """
        pairs = source_within(self.of, "pairs", "whose sources could get a prefix").pairs(split)
        return [(self.prefix + text, target) for text, target in pairs]


@dataclass(frozen=True)
class OfLength:
    """The pairs of `of` with `shortest` to `longest` words on the source side, in every split: to ask
    what length does.

    Attributes:
      of: the source whose pairs are chosen from.
      shortest, longest: words of the source side, as white space separates them.
    """

    of: Part = "files"
    shortest: int = 1
    longest: int = 50

    parts: ClassVar = {"of": SOURCES}

    def pairs(self, split: str) -> list[Pair]:
        """Returns the pairs of `split` of the other source whose source text has `shortest` to
        `longest` words; raises `UserError` for impossible limits or if no pair is left.
        """
        check_lengths(1, self.shortest, self.longest)
        pairs = source_within(self.of, "pairs", "of which some could be chosen").pairs(split)
        lengths = [len(source.split()) for source, _ in pairs]
        allowed = range(self.shortest, self.longest + 1)
        remaining = [pair for pair, length in zip(pairs, lengths, strict=True) if length in allowed]
        if not remaining:
            summary = (
                f"its {len(pairs)} pairs have {min(lengths)} to {max(lengths)} words"
                if pairs
                else "it is empty"
            )
            limits = f"config.data.shortest={self.shortest} and config.data.longest={self.longest}"
            raise UserError(f"{limits} leave no pair of the {split} split; {summary}")
        return remaining


@dataclass(frozen=True)
class Joined:
    """Training pairs of `of`, shuffled and dealt into runs of 1 to `most`, each joined by blanks;
    other splits stay as they are.

    A system trained on sentences of six words has never had to tell the fifteenth from the third; on
    joined ones it has, without any new data (Kondo et al., "Sentence Concatenation Approach to Data
    Augmentation for Neural Machine Translation", NAACL SRW 2021, who join two).

    Attributes:
      of: the source whose pairs are joined.
      most: pairs in the longest runs; all lengths of run are equally likely.
      copies: times every pair occurs, in another run each time.
      seed: seed by which pairs are shuffled and dealt to runs.
    """

    of: Part = "table"
    most: int = 4
    copies: int = 1
    seed: int = 0

    parts: ClassVar = {"of": SOURCES}

    def pairs(self, split: str) -> list[Pair]:
        """Returns the pairs of `split` of the other source; for "train", shuffles them and joins
        runs of random length 1 to `most` into single pairs, and that `copies` times. Raises
        `UserError` as `of` does, and for `most` or `copies` below 1, or too many copies.
        """
        if min(self.most, self.copies) < 1:
            raise UserError(
                f"config.data.most={self.most} and config.data.copies={self.copies} must be at"
                " least 1"
            )
        pairs: list[Pair] = source_within(self.of, "pairs", "that could be joined").pairs(split)
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
                source, target = map(" ".join, zip(*order[begin:end], strict=True))
                joined.append((source, target))
                begin = end
        return joined
