"""Questions whose answers are stretches of a passage: read, and as ids.

A row is what begins a text, the question, an end, the passage, an end; "types" is 1 from the passage
on. Passages are cut into words and signs, whose places in the text are known, and answers are
whole words. "words" numbers the passage's words, from 1, at each of their pieces; "span" has the
first piece and the last of the answer, as places in the row. A long passage may be cut into
windows that overlap, a row each; "question" has the number of the question that a row belongs to.
Where the answer is not in the window as a whole, or there is none, both places of "span" are 0, the
token that begins the text (J. Devlin et al., "BERT", NAACL 2019, section 4.3).
"""

from __future__ import annotations

import dataclasses
import hashlib
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attnlab.config.registry import build
from attnlab.data import SOURCES, SPLITS
from attnlab.data.columns import Examples, Packed
from attnlab.data.corpus import (
    VocabularySettings,
    has_vocabularies,
    lent,
    load_vocabularies,
    save_vocabularies,
)
from attnlab.data.files import contents, find_file
from attnlab.data.generated import Sized, split_of
from attnlab.data.readers.json_text import parse_json
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError

_WORD = re.compile(r"\w+|[^\w\s]")
_NAMES = ("fox", "dog", "king", "child", "farmer", "cat", "horse", "teacher", "bird", "woman")
_KINDS = ("red", "old", "big", "small", "happy", "wise")
_DEEDS = ("sees", "hears", "likes", "follows", "paints")


class Question(NamedTuple):
    """A question, its passage, and the answers that are right: each a text and where it begins in
    the passage, in characters. The first is the one to learn; none where the passage does not say.
    """

    question: str
    passage: str
    answers: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Windows:
    """How a long passage is cut: windows that begin `stride` tokens after one another.

    Attributes:
      width: tokens of the longest row.
      stride: at most what a row has room for beside a question.
      question: tokens of a question that are read.
    """

    width: int
    stride: int
    question: int

    def begins(self, length: int, room: int) -> range:
        """Where the windows of `room` tokens begin in a passage of `length`; the last is the first
        that reaches its end.
        """
        further = -(-max(length - room, 0) // self.stride)
        return range(0, (further + 1) * self.stride, self.stride)


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
            found = [
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
        if not found:
            raise UserError(f"{path} has no question")
        for one in found:
            for text, begin in one.answers:
                stands = begin >= 0 and one.passage[begin : begin + len(text)] == text
                if not stands or not text.strip():
                    raise UserError(
                        f"{path}: {one.question!r}: the answer {text!r} does not stand at character"
                        f" {begin} of its passage"
                    )
        return found


def _answers(asked: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    return tuple((_of(one, "text"), _of(one, "answer_start", int)) for one in asked["answers"])


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
        found: dict[str, Question] = {}
        wanted = self.count(split)
        while len(found) < wanted:
            one = self._drawn(draw)
            if split_of(one.passage) == split:
                found[one.passage + one.question] = one
        return list(found.values())

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
class Questions:
    """The data of a run.

    Attributes:
      rows: split to its questions.
      examples: split to the same as ids.
      vocabulary: of questions and passages.
      fingerprints: split to a hash of its questions, for the manifest.
    """

    kept: ClassVar[str] = "vocabulary"
    things: ClassVar[str] = "questions"

    rows: Mapping[str, Sequence[Question]]
    examples: Mapping[str, Examples]
    vocabulary: Vocabulary
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that were read."""
        return tuple(self.rows)

    def size(self, split: str) -> int:
        """The number of questions."""
        return len(self.rows[split])

    def save(self, workdir: Path) -> None:
        """Keep the vocabulary with a run."""
        save_vocabularies((self.vocabulary, self.vocabulary), workdir)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether `save` has been there."""
        return has_vocabularies(workdir)

    def about(self, split: str) -> str:
        """Questions and tokens in a line, and how many windows there are if more."""
        examples = self.examples[split]
        ids = examples.packed("source").ids
        unknown = self.vocabulary.special.unknown(ids)
        windows = f" in {len(examples):,} windows" if len(examples) > self.size(split) else ""
        return f"{self.size(split):,} questions{windows}, {len(ids):,} tokens ({unknown:,} unknown)"


def load(
    data: Mapping[str, Any],
    vocabulary: Mapping[str, Any],
    workdir: Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
    begun: Path | None = None,
    unanswerable: bool = False,
    windows: Windows | None = None,
) -> Questions:
    """Read the splits of a source and encode them; see `attnlab.data.labelled.load`. Questions
    without an answer are left out unless they are `unanswerable`.

    Raises:
      UserError: bad config, unreadable data, a vocabulary that is damaged or of other settings, a
        split without an answer.
    """
    of = build(SOURCES, data, "config.data")()
    if not callable(getattr(of, "questions", None)):
        raise UserError(
            f"config.data={data['name']}: a data source for this task needs a method"
            " questions(split), see attnlab.data"
        )
    settings = VocabularySettings.read(vocabulary)
    known = workdir is not None and has_vocabularies(workdir)
    found = load_vocabularies(workdir, settings)[0] if workdir and known else lent(begun, settings)
    rows: dict[str, Sequence[Question]] = {
        split: _asked(of.questions(split), split, unanswerable)
        for split in SPLITS
        if split in splits or (split == "train" and found is None)
    }
    if found is None:
        texts = (text for one in rows["train"] for text in (one.question, one.passage))
        found = Vocabulary.train(texts, **settings.of_one)
    rows = {split: rows[split] for split in splits}
    return Questions(
        rows,
        {split: encode(found, each, windows) for split, each in rows.items()},
        found,
        {split: fingerprint(each) for split, each in rows.items()},
    )


def _asked(found: Sequence[Question], split: str, unanswerable: bool) -> Sequence[Question]:
    """All questions, or those that have an answer."""
    kept = found if unanswerable else [one for one in found if one.answers]
    if not kept:
        raise UserError(
            f"no question of the split {split!r} has an answer; set passages.unanswerable=true if"
            " none is to have one"
        )
    return kept


def cut(text: str) -> list[tuple[int, int]]:
    """Where the words and signs of a text begin and end, in characters."""
    return [one.span() for one in _WORD.finditer(text)]


def _pieces(vocabulary: Vocabulary, texts: Sequence[str]) -> list[list[np.ndarray]]:
    """The ids of every word of every text, each cut as it is behind a blank if one is there; a word
    that has none is unknown.
    """
    places = [cut(text) for text in texts]
    flat = [
        " " * text[max(begin - 1, 0)].isspace() + text[begin:end]
        for text, of in zip(texts, places, strict=True)
        for begin, end in of
    ]
    unknown = np.array([vocabulary.special.unk or 0], np.int32)
    found = iter([ids if len(ids) else unknown for ids in vocabulary.encode_stream(flat)])
    return [[next(found) for _ in of] for of in places]


def encode(
    vocabulary: Vocabulary, questions: Sequence[Question], windows: Windows | None = None
) -> Examples:
    """Questions as columns "source", "types", "words", "span" and "question"; see above. Passages
    are whole if there are no `windows`.
    """
    special = vocabulary.special
    asked = _pieces(vocabulary, [one.question for one in questions])
    passages = _pieces(vocabulary, [one.passage for one in questions])
    source, types, words, spans, owners = [], [], [], [], []
    for owner, (one, question, passage) in enumerate(zip(questions, asked, passages, strict=True)):
        pieces = [piece for word in question for piece in word]
        read = pieces if windows is None else pieces[: windows.question]
        head = [special.bos, *read, special.eos]
        body = [piece for word in passage for piece in word]
        number = np.repeat(np.arange(1, len(passage) + 1), [len(word) for word in passage]).tolist()
        answer = _span(one, number)
        room = len(body) if windows is None else windows.width - len(head) - 1
        for begin in [0] if windows is None else windows.begins(len(body), room):
            inside = slice(begin, begin + room)
            source.append([*head, *body[inside], special.eos])
            types.append([0] * len(head) + [1] * (len(body[inside]) + 1))
            words.append([0] * len(head) + number[inside] + [0])
            whole = answer is not None and begin <= answer[0] and answer[1] < begin + room
            spans.append([at - begin + len(head) for at in answer] if answer and whole else [0, 0])
            owners.append(owner)
    return Examples(
        source=Packed(source, special.pad),
        types=Packed(types),
        words=Packed(words),
        span=np.array(spans, np.int32).reshape(-1, 2),
        question=np.array(owners, np.int32),
    )


def _span(one: Question, words: Sequence[int]) -> tuple[int, int] | None:
    """The first and the last piece of the first answer, among the passage's, whose words are given
    by number; None where there is none.
    """
    if not one.answers:
        return None
    text, begin = one.answers[0]
    inside = [
        number
        for number, (first, last) in enumerate(cut(one.passage), 1)
        if first < begin + len(text) and last > begin
    ]
    places = [at for at, number in enumerate(words) if number in (inside[:1] + inside[-1:])]
    return places[0], places[-1]


def fingerprint(questions: Iterable[Question]) -> str:
    """SHA-256 (hex) of the questions in their order."""
    digest = hashlib.sha256()
    for one in questions:
        digest.update(repr(tuple(one)).encode())
    return digest.hexdigest()
