"""Questions whose answers are stretches of a passage: sources of them, and the data of a run. How they
are ids says `attnlab.data.passages`.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnlab.data.dataset import Dataset, Split, fingerprint_of_rows
from attnlab.data.files import SplitFiles, contents
from attnlab.data.generated import Sized
from attnlab.data.json_files import parse_json
from attnlab.data.passages import MOST, Question, Units, Windows, read, to_examples, unreachable
from attnlab.errors import UserError

_NAMES = ("fox", "dog", "king", "child", "farmer", "cat", "horse", "teacher", "bird", "woman")
_KINDS = ("red", "old", "big", "small", "happy", "wise")
_DEEDS = ("sees", "hears", "likes", "follows", "paints")


@dataclass(frozen=True)
class Squad(SplitFiles):
    """Questions in the form of SQuAD (Rajpurkar et al. 2016): "data", "paragraphs", "context", "qas",
    "answers", "answer_start".

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split, plain, .gz or .xz.
    """

    train: str = "train.json"
    valid: str = "dev.json"
    test: str = "test.json"

    def questions(self, split: str) -> list[Question]:
        """Reads the questions of `split` from a file in the form of SQuAD, each with its passage
        and answers (maybe none); raises `UserError` if an answer does not stand at its position.
        Those without an answer are of SQuAD 2 (Rajpurkar et al. 2018).

        Raises:
          UserError: no such file, one that is no JSON of this form, or an answer that does not
            stand where it is said to, by the question's id.
        """
        path = self.path(split)
        try:
            content = parse_json(contents(path), str(path))
            questions = [
                Question(_get(entry, "question"), _get(paragraph, "context"), _answers(entry))
                for article in content["data"]
                for paragraph in article["paragraphs"]
                for entry in paragraph["qas"]
            ]
        except (KeyError, TypeError) as error:
            raise UserError(
                f"{path} is not in the form of SQuAD ({type(error).__name__}: {error}); expected"
                ' {"data": [{"paragraphs": [{"context": ..., "qas": [...]}]}]}'
            ) from error
        if not questions:
            raise UserError(f"{path} has no question")
        for question in questions:
            check_answers(question, f"{path}: {question.question!r}")
        return questions


def check_answers(question: Question, where: str) -> None:
    """Raises `UserError`, which begins with `where`, unless each answer (text, first character) of
    a question stands at that character of its passage and is not blank.
    """
    for text, begin in question.answers:
        stands = begin >= 0 and question.passage[begin : begin + len(text)] == text
        if not stands or not text.strip():
            raise UserError(
                f"{where}: the answer {text!r} does not stand at character {begin} of its passage"
            )


def _answers(entry: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple((_get(node, "text"), _get(node, "answer_start", int)) for node in entry["answers"])


def _get(entry: Mapping[str, Any], field: str, kind: type = str) -> Any:
    """Returns a field of a JSON object; raises `TypeError` unless it is of type `kind`."""
    if type(value := entry[field]) is not kind:
        raise TypeError(f"{field} is {str(value)[:40]!r}")
    return value


@dataclass(frozen=True)
class Deeds(Sized):
    """Made-up passages of `clauses` clauses, and a question about one of them: "the old king sees
    the red fox . ..." and "whom does the king meet ?". No subject occurs twice.

    A passage's split follows from its own hash (90/5/5), and its question's with it.

    Attributes:
      clauses: how many clauses a passage has, 1 to 10.
      absent: the share of the questions about somebody who meets nobody there; they have no answer.
    """

    clauses: int = 4
    absent: float = 0.0

    def questions(self, split: str) -> list[Question]:
        """Draws the questions of `split`, each with its made-up passage and answer, such that no
        passage is in two splits; raises `UserError` for impossible settings.
        """
        largest = len(_NAMES) - bool(self.absent)
        if not (1 <= self.clauses <= largest and 0 <= self.absent <= 1):
            raise UserError(
                f"config.data.clauses={self.clauses} and absent={self.absent}: expected 1 to"
                f" {len(_NAMES)} clauses, one fewer with absent questions, and a share"
            )
        draw = random.Random(f"deeds {self.seed} {split}")
        questions = self.apart(
            split, lambda: self._draw_question(draw), lambda row: row.passage, lambda row: row[:2]
        )
        return list(questions)

    def _draw_question(self, draw: random.Random) -> Question:
        """Draws a passage of random clauses and a question about the object of one of its subjects,
        with its answer, or, with probability `absent`, about somebody who is no subject, without
        one.
        """
        subjects = draw.sample(_NAMES, self.clauses)
        index, text, answer = draw.randrange(self.clauses), "", ("", 0)
        for number, name in enumerate(subjects):
            object_phrase = f"the {draw.choice(_KINDS)} {draw.choice(_NAMES)}"
            text += f"the {draw.choice(_KINDS)} {name} {draw.choice(_DEEDS)} "
            answer = (object_phrase, len(text)) if number == index else answer
            text += f"{object_phrase} . "
        if self.absent and draw.random() < self.absent:
            subjects = [draw.choice([name for name in _NAMES if name not in subjects])]
            return Question(f"whom does the {subjects[0]} meet ?", text.strip(), ())
        return Question(f"whom does the {subjects[index]} meet ?", text.strip(), (answer,))


@dataclass(frozen=True)
class Questions(Dataset[Question]):
    """The data of a run of question answering; `extra` has the share of the questions of a split none
    of whose answers can be given.

    Attributes:
      unanswerable: whether questions without an answer count; else they are left out.
      windows: how passages are cut, if at all.
      units: what an answer begins and ends with.
      bound: the largest such share of a split to train or choose by.
    """

    method = "questions"
    things = "questions"

    unanswerable: bool = False
    windows: Windows | None = None
    units: Units = "words"
    bound: float = 1.0

    def checked(self, rows: Sequence[Question], split: str) -> Sequence[Question]:
        """Returns the questions of a split that have an answer, or all if `unanswerable`; raises
        `UserError` if there is none. See `Dataset.checked`.
        """
        chosen = rows if self.unanswerable else [row for row in rows if row.answers]
        if not chosen:
            raise UserError(
                f"no question of the split {split!r} has an answer; set passages.unanswerable=true if"
                " none is to have one"
            )
        return chosen

    def texts_of(self, train: Sequence[Question]) -> Iterable[str]:
        """See `Dataset.texts_of`: those of questions and passages."""
        return (text for row in train for text in (row.question, row.passage))

    def encoded(self, rows: Sequence[Question], split: str) -> Split:
        """Encodes the questions and passages of a split as a `Split`; raises `UserError`, except
        for the test split, if of more than the share `bound` of the answerable questions no answer
        is a span of tokens. See `Dataset.encoded`.
        """
        units = self.units
        passages = read(self.vocabulary, rows, units)
        examples = to_examples(self.vocabulary, passages, rows, self.windows)
        missed = unreachable(passages, rows, self.windows)
        if missed > self.bound and split != "test":
            raise UserError(
                f"config.data={self.name}: {missed:.1%} of the answers of the {split} split"
                f" are not whole {units} of the vocabulary, at most {MOST} tokens in one row;"
                f" config.passages.unreachable={self.bound} allows fewer; take passages.answers=pieces"
                " with smaller pieces (vocabulary.kind=bpe or char), or raise it"
            )
        fingerprint = fingerprint_of_rows(rows, "" if units == "words" else units)
        return Split(rows, examples, fingerprint, missed)

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the numbers of questions, windows (if more),
        tokens and unknown tokens, and the share of answerable questions without a reachable answer.
        """
        count, size = len(self.examples[split]), self.size(split)
        windows = f" in {count:,} windows" if count > size else ""
        return (
            f"{size:,} questions{windows}, {self.about_tokens(split, 'source')};"
            f" {self.extra.get(split, 0.0):.1%} of the answers cannot be reached"
        )
