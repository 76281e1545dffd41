"""Sources made of the pairs of another one: one side of them, with a text before each source, those of
one length, joined end to end, or in one row with questions.
"""

import random
from dataclasses import dataclass
from typing import ClassVar, Literal

from attnlab.config.registry import Part
from attnlab.data import SOURCES
from attnlab.data.asked import Row
from attnlab.data.generated import Pair, check_lengths, source_within
from attnlab.errors import UserError

MOST = 10**7  # pairs that copies may add up to
_SAY, _END = "=", "."


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
        """Reads the pairs of `split` from the other source and makes a row of each: the source
        words, "=" and the target words. Its answers are each target word at the word before it and
        "." at the last; raises `UserError` as the other source does, or if it has no pairs.
        """
        rows = []
        for pair in source_within(self.of, "pairs", "that could stand in one row").pairs(split):
            source, target = (text.split() for text in pair)
            answers = (*("" for _ in source), *target, _END)
            rows.append(Row((*source, _SAY, *target), answers, (len(source),) * (len(target) + 1)))
        return rows
