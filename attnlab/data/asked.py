"""Texts in which some words are followed by a question: the form of all diagnostic tasks.

A source of such texts has `asked(split) -> list[Row]`. A row is read from left to right. At a word
with an answer the system says this answer, having read the words up to this one; the answer itself
is not read, unless it stands in the text. As ids a row is what begins a text and its words,
"source"; and "target", the id of each answer at the place of its word, padding elsewhere, which no
loss and no score counts.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from attnlab.config.schema import Node
from attnlab.data import read_splits
from attnlab.data.columns import Examples, Packed
from attnlab.data.corpus import (
    OfRows,
    VocabularySettings,
    fingerprint_of_rows,
    giving,
    saved_or_inherited,
)
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


@dataclasses.dataclass(frozen=True)
class AskedTexts(OfRows):
    """The data of a run.

    Attributes:
      rows: split to its texts.
      examples: split to the same as ids.
      vocabulary: of words and answers together.
      group: what the groups of the rows are called, "" where there are none.
      guesses: split to the scores of baselines that read nothing or little, by name.
      fingerprints: split to a hash of its rows, for the manifest.
    """

    things: ClassVar[str] = "texts"

    rows: Mapping[str, Sequence[Row]]
    examples: Mapping[str, Examples]
    vocabulary: Vocabulary
    group: str = ""
    guesses: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def questions(self, split: str) -> int:
        """The number of answers that are asked for."""
        return sum(map(bool, (answer for row in self.rows[split] for answer in row.answers)))

    def about(self, split: str) -> str:
        """Texts, words, questions and the baselines, in a line."""
        words = sum(len(row.words) for row in self.rows[split])
        guesses = ", ".join(f"{name} {score:.3f}" for name, score in self.guesses[split].items())
        return (
            f"{self.size(split):,} texts, {words:,} words, {self.questions(split):,} questions;"
            f" accuracy of guesses: {guesses}"
        )


def load(
    data: Mapping[str, Any],
    vocabulary: Mapping[str, Any] | Node,
    workdir: Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
    begun: Path | None = None,
) -> AskedTexts:
    """Read the splits of a source and encode them; the vocabulary is kept and learned as
    `corpus.load` does, or that of the run `begun`.

    Raises:
      UserError: bad config, a source of another kind, a split without a question, words that are
        cut into several pieces, or a saved vocabulary that is damaged or of other settings.
    """
    source = giving(data, "asked", "mqar; in_a_row makes one of a source of pairs")
    settings = VocabularySettings.read(vocabulary)
    # The training split is always read: guesses are learned from it.
    rows = read_splits(
        lambda split: _checked(source.asked(split), f"config.data={data['name']}", split),
        splits,
        learn=True,
    )
    learned = saved_or_inherited(workdir, settings, begun) or _learn(rows["train"], settings)
    answers = Counter(answer for row in rows["train"] for answer in row.answers if answer)
    chosen = {split: rows[split] for split in splits}
    more: Callable[..., Mapping[str, float]] = getattr(source, "guesses", lambda rows: {})
    return AskedTexts(
        chosen,
        {split: encode(learned, texts) for split, texts in chosen.items()},
        learned,
        getattr(source, "group", ""),
        {split: {**guesses(answers, texts), **more(texts)} for split, texts in chosen.items()},
        {split: fingerprint_of_rows(texts) for split, texts in chosen.items()},
    )


def encode(vocabulary: Vocabulary, rows: Sequence[Row]) -> Examples:
    """Rows as columns "source" and "target", see the top of this file.

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


def guesses(answers: Counter[str], rows: Sequence[Row]) -> dict[str, float]:
    """The accuracy on `rows` of a uniform guess among all answers of the training split, "chance",
    and of its most frequent answer, "majority".
    """
    asked = [answer for row in rows for answer in row.answers if answer]
    best = min(answers, key=lambda answer: (-answers[answer], answer))
    return {
        CHANCE: sum(answer in answers for answer in asked) / len(answers) / len(asked),
        MAJORITY: asked.count(best) / len(asked),
    }


def _checked(rows: Sequence[Row], where: str, split: str) -> Sequence[Row]:
    for row in rows:
        if len(row.words) != len(row.answers):
            raise UserError(
                f"{where}: a text of the {split} split has {len(row.words)} words and"
                f" {len(row.answers)} answers; give one for each word, '' where nothing is asked"
            )
    if not any(any(row.answers) for row in rows):
        raise UserError(f"{where}: the {split} split asks for no answer")
    return rows


def _learn(rows: Sequence[Row], settings: VocabularySettings) -> Vocabulary:
    texts = (" ".join((*row.words, *filter(None, row.answers))) for row in rows)
    return Vocabulary.train(texts, **settings.of_one)
