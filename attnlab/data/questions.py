"""Questions whose answers are stretches of a passage: sources of them, and the data of a run. How they
are ids says `attnlab.data.passages`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from attnlab.config.schema import Node
from attnlab.data import read_splits
from attnlab.data.columns import Examples
from attnlab.data.corpus import (
    OfRows,
    VocabularySettings,
    fingerprint_of_rows,
    giving,
    saved_or_inherited,
)
from attnlab.data.files import contents, find_file
from attnlab.data.generated import Sized, split_of
from attnlab.data.passages import MOST, Question, Units, Windows, read, to_examples, unreachable
from attnlab.data.readers.json_text import parse_json
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError

_NAMES = ("fox", "dog", "king", "child", "farmer", "cat", "horse", "teacher", "bird", "woman")
_KINDS = ("red", "old", "big", "small", "happy", "wise")
_DEEDS = ("sees", "hears", "likes", "follows", "paints")


@dataclass(frozen=True)
class Squad:
    """Questions in the form of SQuAD (Rajpurkar et al. 2016): "data", "paragraphs", "context", "qas",
    "answers", "answer_start".

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split, plain, .gz or .xz.
    """

    directory: str = ""
    train: str = "train.json"
    valid: str = "dev.json"
    test: str = "test.json"

    def questions(self, split: str) -> list[Question]:
        """The questions of `split`, in SQuAD 2 (Rajpurkar et al. 2018) those without an answer too.

        Raises:
          UserError: no such file, one that is no JSON of this form, or an answer that does not
            stand where it is said to, by the question's id.
        """
        path = find_file(self.directory, getattr(self, split))
        try:
            content = parse_json(contents(path), str(path))
            questions = [
                Question(_of(asked, "question"), _of(paragraph, "context"), _answers(asked))
                for article in content["data"]
                for paragraph in article["paragraphs"]
                for asked in paragraph["qas"]
            ]
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{path} is not in the form of SQuAD ({type(error).__name__}: {error}); expected"
                ' {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}'
            ) from error
        if not questions:
            raise UserError(f"{path} has no question")
        for question in questions:
            for text, begin in question.answers:
                stands = begin >= 0 and question.passage[begin : begin + len(text)] == text
                if not stands or not text.strip():
                    raise UserError(
                        f"{path}: {question.question!r}: the answer {text!r} does not stand at"
                        f" character {begin} of its passage"
                    )
        return questions


def _answers(asked: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple((_of(node, "text"), _of(node, "answer_start", int)) for node in asked["answers"])


def _of(entry: Mapping[str, Any], field: str, kind: type = str) -> Any:
    """A field of an object of SQuAD; `TypeError` where it is of another kind."""
    if type(value := entry[field]) is not kind:
        raise TypeError(f"{field} is {str(value)[:40]!r}")
    return value


@dataclass(frozen=True)
class Deeds(Sized):
    """Made-up passages of `clauses` clauses, and a question about one of them: "the old king sees
    the red fox . ..." and "whom does the king meet ?". No subject occurs twice.

    A passage's split follows from its own hash (90/5/5), and its question's with it.

    Attributes:
      clauses: of a passage, 1 to 10.
      absent: the share of the questions about somebody who meets nobody there; they have no answer.
    """

    clauses: int = 4
    absent: float = 0.0

    def questions(self, split: str) -> list[Question]:
        """The questions of `split`; `UserError` for impossible settings."""
        most = len(_NAMES) - bool(self.absent)
        if not (1 <= self.clauses <= most and 0 <= self.absent <= 1):
            raise UserError(
                f"config.data.clauses={self.clauses} and absent={self.absent}: expected 1 to"
                f" {len(_NAMES)} clauses, one fewer with absent questions, and a share"
            )
        draw = random.Random(f"deeds {self.seed} {split}")
        questions: dict[str, Question] = {}
        wanted = self.count(split)
        while len(questions) < wanted:
            question = self._drawn(draw)
            if split_of(question.passage) == split:
                questions[question.passage + question.question] = question
        return list(questions.values())

    def _drawn(self, draw: random.Random) -> Question:
        who = draw.sample(_NAMES, self.clauses)
        asked, text, answer = draw.randrange(self.clauses), "", ("", 0)
        for number, name in enumerate(who):
            other = f"the {draw.choice(_KINDS)} {draw.choice(_NAMES)}"
            text += f"the {draw.choice(_KINDS)} {name} {draw.choice(_DEEDS)} "
            answer = (other, len(text)) if number == asked else answer
            text += f"{other} . "
        if self.absent and draw.random() < self.absent:
            who = [draw.choice([name for name in _NAMES if name not in who])]
            return Question(f"whom does the {who[0]} meet ?", text.strip(), ())
        return Question(f"whom does the {who[asked]} meet ?", text.strip(), (answer,))


@dataclasses.dataclass(frozen=True)
class Questions(OfRows):
    """The data of a run.

    Attributes:
      rows: split to its questions.
      examples: split to the same as ids.
      vocabulary: of questions and passages.
      fingerprints: split to a hash of its questions, for the manifest.
      unreachable: split to the share of its questions none of whose answers can be given.
    """

    things: ClassVar[str] = "questions"

    rows: Mapping[str, Sequence[Question]]
    examples: Mapping[str, Examples]
    vocabulary: Vocabulary
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unreachable: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def about(self, split: str) -> str:
        """Questions and tokens in a line, and how many windows there are if more."""
        examples = self.examples[split]
        ids = examples.packed("source").ids
        unknown = self.vocabulary.special.unknown(ids)
        windows = f" in {len(examples):,} windows" if len(examples) > self.size(split) else ""
        return (
            f"{self.size(split):,} questions{windows}, {len(ids):,} tokens ({unknown:,} unknown);"
            f" {self.unreachable.get(split, 0.0):.1%} of the answers cannot be reached"
        )


def load(
    data: Mapping[str, Any],
    vocabulary: Mapping[str, Any] | Node,
    workdir: Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
    begun: Path | None = None,
    unanswerable: bool = False,
    windows: Windows | None = None,
    units: Units = "words",
    bound: float = 1.0,
) -> Questions:
    """Read the splits of a source and encode them; see `attnlab.data.labelled.load`. Questions
    without an answer are left out unless they are `unanswerable`.

    Raises:
      UserError: bad config, unreadable data, a vocabulary that is damaged or of other settings, a
        split without an answer, or one to train or choose by with a larger share of answers that
        cannot be reached than the `bound`.
    """
    of = giving(data, "questions")
    settings = VocabularySettings.read(vocabulary)
    vocab = saved_or_inherited(workdir, settings, begun)
    rows = read_splits(
        lambda split: _asked(of.questions(split), split, unanswerable), splits, learn=vocab is None
    )
    if vocab is None:
        texts = (text for row in rows["train"] for text in (row.question, row.passage))
        vocab = Vocabulary.train(texts, **settings.of_one)
    rows = {split: rows[split] for split in splits}
    examples, missed = {}, {}
    for split, each in rows.items():
        encoded = read(vocab, each, units)
        examples[split] = to_examples(vocab, encoded, each, windows)
        missed[split] = unreachable(encoded, each, windows)
        if missed[split] > bound and split != "test":
            raise UserError(
                f"config.data={data['name']}: {missed[split]:.1%} of the answers of the {split} split"
                f" are not whole {units} of the vocabulary, at most {MOST} tokens in one row;"
                f" config.passages.unreachable={bound} allows fewer; take passages.answers=pieces"
                " with smaller pieces (vocabulary.kind=bpe or char), or raise it"
            )
    first = "" if units == "words" else units
    prints = {split: fingerprint_of_rows(each, first) for split, each in rows.items()}
    return Questions(rows, examples, vocab, prints, missed)


def _asked(questions: Sequence[Question], split: str, unanswerable: bool) -> Sequence[Question]:
    """All questions, or those that have an answer."""
    chosen = questions if unanswerable else [question for question in questions if question.answers]
    if not chosen:
        raise UserError(
            f"no question of the split {split!r} has an answer; set passages.unanswerable=true if"
            " none is to have one"
        )
    return chosen
