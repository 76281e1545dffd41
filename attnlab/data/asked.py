"""Texts in which some words are followed by a question: the form of all diagnostic tasks, the
data of their runs, and the base of their generators.

A source of such texts has `asked(split) -> list[Row]`. A row is read from left to right. At a word
with an answer the system says this answer, having read the words up to this one; the answer itself
is not read, unless it stands in the text. As ids a row is what begins a text and its words,
"source"; and "target", the id of each answer at the place of its word, padding elsewhere, which no
loss and no score counts.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from attnlab.data.columns import Examples, Packed
from attnlab.data.dataset import Dataset, Split, fingerprint_of_rows
from attnlab.data.generated import Sized
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError

CHANCE, MAJORITY = "chance", "majority"


class Row(NamedTuple):
    """Words without blanks, the answer asked for at each word ("" for none), and a group for each
    answer that is asked for, in their order, by which scores are split up; () for no groups.
    """

    words: tuple[str, ...]
    answers: tuple[str, ...]
    groups: tuple[int, ...] = ()


class AskedTexts(Dataset[Row]):
    """The data of a run of a diagnostic task; `extra` has the scores of baselines that read nothing or
    little, by name.
    """

    method = "asked"
    such_as = "mqar; in_a_row makes one of a source of pairs"
    things = "texts"
    guessing = True

    @property
    def group(self) -> str:
        """What the groups of the rows are called, "" where there are none."""
        return getattr(self.source, "group", "")

    def questions(self, split: str) -> int:
        """The number of answers that are asked for."""
        return len(_answers(self.rows[split]))

    def checked(self, rows: Sequence[Row], split: str) -> Sequence[Row]:
        """Returns the rows of a split unchanged; raises `UserError` unless each row has as many
        answers ("" for none) as words, and the split at least one answer. See `Dataset.checked`.
        """
        where = f"config.data={self.name}"
        for row in rows:
            if len(row.words) != len(row.answers):
                raise UserError(
                    f"{where}: a text of the {split} split has {len(row.words)} words and"
                    f" {len(row.answers)} answers; give one for each word, '' where nothing is asked"
                )
        if not any(any(row.answers) for row in rows):
            raise UserError(f"{where}: the {split} split asks for no answer")
        return rows

    def texts_of(self, train: Sequence[Row]) -> Iterable[str]:
        """See `Dataset.texts_of`: words and answers together."""
        return (" ".join((*row.words, *filter(None, row.answers))) for row in train)

    def prior_of(self, train: Sequence[Row]) -> Counter[str]:
        """See `Dataset.prior_of`: how often each answer is right."""
        return Counter(_answers(train))

    def encoded(self, rows: Sequence[Row], split: str) -> Split:
        """Encodes the rows of a split and returns a `Split` with the columns "source" and "target",
        its fingerprint and a dict of the accuracy of each baseline. See `Dataset.encoded`.
        """
        extra: Callable[..., Mapping[str, float]] = getattr(self.source, "guesses", lambda rows: {})
        baselines = {**guesses(self.prior, _answers(rows)), **extra(rows)}
        columns = encode(self.vocabulary, rows)
        return Split(rows, columns, fingerprint_of_rows(rows), baselines)

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the numbers of texts, words and questions, and
        the accuracy of each baseline.
        """
        words = sum(len(row.words) for row in self.rows[split])
        baselines = ", ".join(f"{name} {score:.3f}" for name, score in self.extra[split].items())
        return (
            f"{self.size(split):,} texts, {words:,} words, {self.questions(split):,} questions;"
            f" accuracy of guesses: {baselines}"
        )


def encode(vocabulary: Vocabulary, rows: Sequence[Row]) -> Examples:
    """Encodes rows, each of words and an answer ("" for none) per word, as `Examples` with "source"
    (BOS, then the word ids) and "target" (the id of the answer at each word that has an answer,
    padding elsewhere); raises `UserError` if a word or answer is not one token.

    Raises:
      UserError: a word that the vocabulary cuts into several pieces.
    """
    words = sorted({word for row in rows for word in (*row.words, *filter(None, row.answers))})
    ids = {}
    for word, pieces in zip(words, vocabulary.encode_stream(words), strict=True):
        if len(pieces) != 1:
            raise UserError(
                f"config.vocabulary.kind={vocabulary.settings['kind']} cuts {word!r} into"
                f" {len(pieces)} pieces, but answers are single tokens; take spaced"
            )
        ids[word] = int(pieces[0])
    special = vocabulary.special
    ids[""] = special.pad
    source = ([special.bos, *map(ids.__getitem__, row.words)] for row in rows)
    target = ([special.pad, *map(ids.__getitem__, row.answers)] for row in rows)
    return Examples(source=Packed(source, special.pad), target=Packed(target, special.pad))


def _answers(rows: Sequence[Row]) -> list[str]:
    """All that is asked for."""
    return [answer for row in rows for answer in row.answers if answer]


def guesses(answers: Counter[str], expected: Sequence[str]) -> dict[str, float]:
    """Returns a dict of the accuracy on the answers `expected` of two baselines: "chance", a uniform
    guess among all different `answers` of the training split, and "majority", its most frequent.
    """
    return {
        CHANCE: sum(answer in answers for answer in expected) / len(answers) / len(expected),
        MAJORITY: expected.count(most_frequent(answers)) / len(expected),
    }


def most_frequent(answers: Counter[str]) -> str:
    """The answer that is right most often, of equal ones the first in alphabetical order."""
    return min(answers, key=lambda answer: (-answers[answer], answer))


@dataclass(frozen=True)
class Drawn(Sized):
    """Base of the generators: `examples`, `valid` and `test` texts, each drawn by `draw_row`; `group`
    is what the groups of its rows are called.
    """

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
