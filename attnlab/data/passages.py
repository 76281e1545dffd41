"""Questions and their passages as ids, and where in the text each piece of them stands.

A row is what begins a text, the question, an end, the passage, an end; "types" is 1 from the passage
on. An answer begins and ends with a unit whose characters in the passage are known: a piece of the
vocabulary ("pieces"), or a word or sign ("words", what older configs mean), which in texts without
blanks is a whole clause. "words" numbers the passage's units, from 1, at each of their pieces;
"span" has the first piece and the last of the answer, as places in the row. A long passage may be cut into
windows that overlap, a row each; "question" has the number of the question that a row belongs to.
Where the answer is not in the window as a whole, or there is none, both places of "span" are 0, the
token that begins the text (J. Devlin et al., "BERT", NAACL 2019, section 4.3).
"""

import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from attnlab.data.columns import Examples, Packed
from attnlab.data.vocabulary import CHUNK, MARK, TOKENIZER, Vocabulary

MOST = 30  # tokens of an answer
_WORD = re.compile(r"\w+|[^\w\s]")
_ALL, _UNITS = re.compile(r"(?s).+"), re.compile(f"[^\\s{MARK}]+")
_NOTHING = np.zeros(0, np.int32), np.zeros((0, 2), np.int64)


class Question(NamedTuple):
    """A question, its passage, and the answers that are right: each a text and where it begins in
    the passage, in characters. The first is the one to learn; none where the passage does not say.
    """

    question: str
    passage: str
    answers: tuple[tuple[str, int], ...]


Units = Literal["words", "pieces"]  # what an answer begins and ends with


class Read(NamedTuple):
    """A question and its passage as ids, the number of the unit of each id of the passage, from 1,
    and the characters [U,2] of each unit.
    """

    question: np.ndarray
    passage: np.ndarray
    numbers: np.ndarray
    places: np.ndarray


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
        """Returns the first positions of the windows of `room` tokens in a passage of `length`; the
        last is the first that reaches its end.
        """
        further = -(-max(length - room, 0) // self.stride)
        return range(0, (further + 1) * self.stride, self.stride)


def cut(text: str) -> list[tuple[int, int]]:
    """Where the words and signs of a text begin and end, in characters."""
    return [match.span() for match in _WORD.finditer(text)]


def read(vocabulary: Vocabulary, questions: Sequence[Question], units: Units) -> list[Read]:
    """Encodes questions and their passages and returns a `Read` for each question: its ids, those
    of the passage, the number of the unit (word or piece, by `units`) of each passage id, and the
    character range [U,2] of every unit.
    """
    passages = [question.passage for question in questions]
    if units == "pieces":
        question_ids = vocabulary.encode_stream(question.question for question in questions)
        pieces = located(vocabulary, passages)
        return [
            Read(question, ids, np.arange(1, len(ids) + 1), _piece_ranges(passage, places))
            for question, (ids, places), passage in zip(question_ids, pieces, passages, strict=True)
        ]
    of_questions = _encode_by_word(vocabulary, [question.question for question in questions])
    of_passages = _encode_by_word(vocabulary, passages)
    return [
        Read(question[0], *body) for question, body in zip(of_questions, of_passages, strict=True)
    ]


def _encode_by_word(
    vocabulary: Vocabulary, texts: Sequence[str]
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Encodes each text word by word and returns a list with a tuple for each text: its ids, for each
    id the number (from 1) of its word, and the character ranges [U,2] of the words.
    """
    places = [cut(text) for text in texts]
    encoded = vocabulary.encode_words(
        [" " * text[max(begin - 1, 0)].isspace() + text[begin:end] for begin, end in ranges]
        for text, ranges in zip(texts, places, strict=True)
    )
    rows = []
    for ranges, words in zip(places, encoded, strict=True):
        ids = np.concatenate([*words, np.zeros(0, np.int32)])
        numbers = np.repeat(np.arange(1, len(ranges) + 1), [len(word) for word in words])
        rows.append((ids, numbers, np.array(ranges).reshape(-1, 2)))
    return rows


def _piece_ranges(text: str, places: np.ndarray) -> np.ndarray:
    """Returns the character ranges [U,2] of a text's pieces without white space at their ends,
    extended over characters of no piece (such as an accent) up to the next piece; `places` are the
    ranges as the vocabulary gives them.
    """
    following = np.append(places[1:, 0], len(text))
    trimmed = []
    for (begin, end), limit in zip(places.tolist(), following.tolist(), strict=True):
        while end < limit and not text[end].isspace():
            end += 1
        stretch = text[begin:end]
        trimmed.append((end - len(stretch.lstrip()), begin + len(stretch.rstrip())))
    return np.array(trimmed).reshape(-1, 2)


def encode(
    vocabulary: Vocabulary,
    questions: Sequence[Question],
    windows: Windows | None = None,
    units: Units = "words",
) -> Examples:
    """Encodes questions with their passages as `Examples` with the columns "source", "types",
    "words", "span" and "question" of `to_examples`; passages are whole if there are no `windows`.
    """
    return to_examples(vocabulary, read(vocabulary, questions, units), questions, windows)


def to_examples(
    vocabulary: Vocabulary,
    rows: Sequence[Read],
    questions: Sequence[Question],
    windows: Windows | None,
) -> Examples:
    """Builds `Examples` with "source" (ids of question and passage), "types" (0 question, 1
    passage), "words" (unit numbers, else 0), "span" (first and last position of the first answer, 0
    if not in the row) and "question" (its number), one row per question, or per window if there are
    `windows`.
    """
    special = vocabulary.special
    source, types, words, spans, owners = [], [], [], [], []
    for owner, (row, question) in enumerate(zip(rows, questions, strict=True)):
        head = [special.bos, *_question_ids(row, windows), special.eos]
        body, number = row.passage.tolist(), row.numbers.tolist()
        answer = _token_span(row, *question.answers[0]) if question.answers else None
        room = len(body) if windows is None else windows.width - len(head) - 1
        for begin in [0] if windows is None else windows.begins(len(body), room):
            inside = slice(begin, begin + room)
            source.append([*head, *body[inside], special.eos])
            types.append([0] * len(head) + [1] * (len(body[inside]) + 1))
            words.append([0] * len(head) + number[inside] + [0])
            fits = answer is not None and begin <= answer[0] and answer[1] < begin + room
            spans.append([end - begin + len(head) for end in answer] if answer and fits else [0, 0])
            owners.append(owner)
    return Examples(
        source=Packed(source, special.pad),
        types=Packed(types),
        words=Packed(words),
        span=np.array(spans, np.int32).reshape(-1, 2),
        question=np.array(owners, np.int32),
    )


def _question_ids(row: Read, windows: Windows | None) -> np.ndarray:
    """The ids of a question that are read."""
    return row.question if windows is None else row.question[: windows.question]


def _token_span(row: Read, text: str, begin: int) -> tuple[int, int] | None:
    """Returns where, among the ids of the passage in `row`, the first and the last piece are that
    cover the answer `text`, which begins at character `begin`; None if no piece does.
    """
    touched = (row.places[:, 0] < begin + len(text)) & (row.places[:, 1] > begin)
    inside = np.flatnonzero(touched) + 1
    places = np.flatnonzero(np.isin(row.numbers, inside[[0, -1]])) if len(inside) else inside
    return (int(places[0]), int(places[-1])) if len(places) else None


def unreachable(
    rows: Sequence[Read], questions: Sequence[Question], windows: Windows | None
) -> float:
    """Returns the share of the answerable questions, read as `rows`, for which no span of at most
    `MOST` tokens in one row or window gives a correct answer, in the text normalisation of SQuAD's
    evaluation; 1 if no question is answerable.
    """

    def reached(row: Read, passage: str, text: str, begin: int) -> bool:
        """Returns whether the pieces that cover an answer, `text` at character `begin` of the
        passage, are few enough, give its text and lie within one window.
        """
        span = _token_span(row, text, begin)
        if span is None or span[1] - span[0] >= MOST:
            return False
        first, last = (row.places[row.numbers[position] - 1] for position in span)
        if normal(passage[first[0] : last[1]]) != normal(text):
            return False
        if windows is None:
            return True
        room = windows.width - len(_question_ids(row, windows)) - 3
        starts = np.array(windows.begins(len(row.passage), room))
        return bool(((starts <= span[0]) & (span[1] < starts + room)).any())

    reachable = [
        any(reached(row, question.passage, *answer) for answer in question.answers)
        for row, question in zip(rows, questions, strict=True)
        if question.answers
    ]
    return 1 - sum(reachable) / max(1, len(reachable))


def normal(text: str) -> list[str]:
    """Returns the words of a text in lower case, without punctuation and articles, as the
    evaluation of SQuAD compares them.
    """
    plain = "".join(sign for sign in text.lower() if sign not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def located(
    vocabulary: Vocabulary, texts: Sequence[str]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Encodes each text and yields its ids, [length] int32, and for each id the range of characters
    [length,2] of the text that it encodes.
    """
    regex = _ALL if vocabulary.settings["kind"] in ("char", TOKENIZER) else _UNITS
    units = {text: [(match.start(), match[0]) for match in regex.finditer(text)] for text in texts}
    different = list({unit for text_units in units.values() for _, unit in text_units})
    by_unit = {}
    for start in range(0, len(different), CHUNK):
        chunk = different[start : start + CHUNK]
        for unit, encoding in zip(chunk, vocabulary.encodings(chunk), strict=True):
            pieces = np.array(encoding.ids, np.int32)
            by_unit[unit] = pieces, np.array(encoding.offsets).reshape(-1, 2)
    for text in texts:
        ids = [by_unit[unit][0] for _, unit in units[text]]
        places = [by_unit[unit][1] + begin for begin, unit in units[text]]
        yield np.concatenate([_NOTHING[0], *ids]), np.concatenate([_NOTHING[1], *places])
