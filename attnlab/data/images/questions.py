"""From config to questions about images: source, vocabulary, answers, mean and deviation of the
images, guesses, and a fingerprint of what was read.

A source of such questions has `visual_questions(split) -> Asked`. An image is kept once, whatever
the number of questions about it. Answers are those of the training split; answer k of C is k + 1 in
a batch, 0 is a row of padding, and C + 1 any answer that only another split has.
"""

from __future__ import annotations

import dataclasses
import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attnlab.config.schema import Node
from attnlab.data import read_splits
from attnlab.data.asked import CHANCE, MAJORITY
from attnlab.data.columns import Examples, Shared, SideBySide
from attnlab.data.corpus import (
    OfRows,
    VocabularySettings,
    giving,
    has_vocabularies,
    inherited_vocabulary,
    load_vocabularies,
    save_vocabularies,
)
from attnlab.data.images.labelled import ImageData, Learned
from attnlab.data.images.labelled import fingerprint as fingerprint_of_images
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError, nearest

QUESTION_ONLY = "question_only"
Box = tuple[int, int, int, int]
"""First row, first column, height and width, in pixels."""
_log = logging.getLogger(__name__)


class Question(NamedTuple):
    """A question about an image.

    Attributes:
      image: number of the image, from 0.
      text: the question.
      answer: what is right.
      group, kind: names by which scores are split up; "" for none.
      boxes: where in the image the answer is to be seen, if the source knows that.
    """

    image: int
    text: str
    answer: str
    group: str = ""
    kind: str = ""
    boxes: tuple[Box, ...] = ()


class Asked(NamedTuple):
    """What a source gives of a split.

    Attributes:
      questions: in the order of the split.
      images: reads or paints the images, uint8 [N,H,W,C]; called where they are needed.
    """

    questions: Sequence[Question]
    images: Callable[[], np.ndarray]


class Prior:
    """Guesses that see no image, learned from the questions of the training split.

    Args:
      questions: of training.

    Attributes:
      answers: how often each answer is right.
    """

    def __init__(self, questions: Sequence[Question]) -> None:
        self.answers = Counter(question.answer for question in questions)
        of_text: dict[str, Counter[str]] = defaultdict(Counter)
        for question in questions:
            of_text[question.text][question.answer] += 1
        self._best = _most(self.answers)
        self._of_text = {text: _most(counts) for text, counts in of_text.items()}

    def guess(self, text: str) -> str:
        """The most frequent answer to a question of these words, or, where nobody has asked it in
        training, to any.
        """
        return self._of_text.get(text, self._best)

    def scores(self, questions: Sequence[Question]) -> dict[str, float]:
        """The accuracy of a uniform guess among all answers, of the most frequent answer, and of
        `guess`.
        """
        number, seen = len(questions), sum(row.answer in self.answers for row in questions)
        return {
            CHANCE: seen / len(self.answers) / number,
            MAJORITY: sum(row.answer == self._best for row in questions) / number,
            QUESTION_ONLY: sum(row.answer == self.guess(row.text) for row in questions) / number,
        }


@dataclasses.dataclass(frozen=True)
class QuestionData(OfRows):
    """The data of a run.

    Attributes:
      rows: split to its questions as read.
      examples: split to its columns "image", "question" and "label".
      vocabulary: of the questions.
      learned: answers (its classes), size of images, mean and deviation.
      prior: guesses that see no image.
      fingerprints: split to the hash of its images and questions, for the manifest.
    """

    kept: ClassVar[str] = "vocabulary, answers, mean and deviation"
    things: ClassVar[str] = "questions"

    rows: Mapping[str, Sequence[Question]]
    examples: Mapping[str, Examples]
    vocabulary: Vocabulary
    learned: Learned
    prior: Prior
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def labels(self, split: str) -> np.ndarray:
        """The number of the answer to each question, [N] from 0; C for one that is not known."""
        return self.examples[split]["label"].block(np.arange(self.size(split)), 1) - 1

    def about(self, split: str) -> str:
        """Questions, images, tokens and guesses, in a line."""
        questions, special = self.rows[split], self.vocabulary.special
        height, width, channels = self.learned.shape
        ids = self.examples[split].packed("question").ids
        guesses = ", ".join(
            f"{name} {score:.3f}" for name, score in self.prior.scores(questions).items()
        )
        return (
            f"{len(questions):,} questions about {len({row.image for row in questions}):,} images"
            f" of {height} x {width} x {channels}, {len(ids):,} tokens ({special.unknown(ids):,}"
            f" unknown), {len(self.learned.classes)} answers; accuracy of guesses: {guesses}"
        )

    def save(self, workdir: Path) -> None:
        """Keep vocabulary, answers, size, mean and deviation with a run."""
        save_vocabularies((self.vocabulary, self.vocabulary), workdir)
        self.learned.save(workdir)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether `save` has been there."""
        return has_vocabularies(workdir) and ImageData.saved(workdir)


def source(data: Mapping[str, Any]) -> Any:
    """The source of a config node; `UserError` unless it has questions about images."""
    return giving(data, "visual_questions", "sort_of_clevr, easy_vqa or image_questions")


def load(
    data: Mapping[str, Any],
    vocabulary: Mapping[str, Any] | Node,
    workdir: Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
    begun: Path | None = None,
) -> QuestionData:
    """Read the splits of a source and encode them.

    Vocabulary, answers, mean and deviation come from `<workdir>/vocabulary/` if they are there, the
    vocabulary else from the run `begun`. What is left is learned, on the training split and nothing
    else; `QuestionData.save` keeps it. The questions of training are always read, for guesses; its
    images only where they are needed.

    Raises:
      UserError: bad config, unreadable data, images of another size than those of training, fewer
        than two answers, a split of which no answer is known, or what was saved is damaged or of
        other settings.
    """
    of, where = source(data), f"config.data={data['name']}"
    settings = VocabularySettings.read(vocabulary)
    folder = workdir if workdir is not None and QuestionData.saved(workdir) else None
    asked = read_splits(
        lambda split: _checked(of.visual_questions(split), f"{where}: the {split} split"),
        splits,
        learn=True,
    )
    needed = [split for split in asked if split in splits or folder is None]
    images = {split: _images(asked[split], f"{where}: the {split} split") for split in needed}
    if folder is not None:
        learned, (vocab, _) = Learned.load(folder), load_vocabularies(folder, settings)
    else:
        questions = asked["train"].questions
        learned = Learned.of(images["train"], [row.answer for row in questions])
        texts = (row.text for row in questions)
        vocab = inherited_vocabulary(begun, settings) or Vocabulary.train(texts, **settings.of_one)
    rows = {split: asked[split].questions for split in splits}
    return QuestionData(
        rows,
        {
            split: encode(vocab, learned, images[split], part, f"{where}: the {split} split")
            for split, part in rows.items()
        },
        vocab,
        learned,
        Prior(asked["train"].questions),
        {split: fingerprint(images[split], part) for split, part in rows.items()},
    )


def encode(
    vocabulary: Vocabulary,
    learned: Learned,
    images: np.ndarray,
    questions: Sequence[Question],
    where: str,
) -> Examples:
    """The columns of a split; answers that the training split does not have share one number
    beyond its own, and are logged.

    Raises:
      UserError: images of another size, a question about one that is not there, or no answer that
        is known.
    """
    if images.shape[1:] != learned.shape:
        mine, theirs = (" x ".join(map(str, axes)) for axes in (images.shape[1:], learned.shape))
        raise UserError(f"{where} has images of {mine}, the training split of {theirs}")
    about = np.array([row.image for row in questions], np.int64)
    if not 0 <= about.min() <= about.max() < len(images):
        raise UserError(
            f"{where} has {len(images):,} images and a question about number {about.max()} (from 0)"
        )
    numbers = {name: number for number, name in enumerate(learned.classes, 1)}
    _warn(learned, questions, where)
    label = [numbers.get(row.answer, len(numbers) + 1) for row in questions]
    return Examples(
        image=Shared(images, about),
        question=vocabulary.packed(row.text for row in questions),
        label=np.array(label, np.int32),
    )


def together(examples: Examples, about: np.ndarray, each: int) -> Examples:
    """Questions about one image side by side: rows of up to Q of them, the image once, "question"
    as [b,Q,width] and "label" as [b,Q]; an image with more has several rows, and what a row lacks
    is padding.

    Args:
      examples: of questions, as `encode` gives them.
      about: [N], the image of each question.
      each: Q.
    """
    order = np.argsort(about, kind="stable")
    _, first, counts = np.unique(about[order], return_index=True, return_counts=True)
    starts = [
        begin + at
        for begin, count in zip(first, counts, strict=True)
        for at in range(0, count, each)
    ]
    ends = np.repeat(first + counts, -(-counts // each))
    places = np.array(starts)[:, None] + np.arange(each)
    rows = np.where(places < ends[:, None], order[np.minimum(places, len(order) - 1)], -1)
    sides = {name: SideBySide(examples[name], rows) for name in ("question", "label")}
    return Examples(image=SideBySide(examples["image"], rows[:, 0]), **sides)


def fingerprint(images: np.ndarray, questions: Sequence[Question]) -> str:
    """SHA-256 (hex) of images and questions in their order."""
    digest = hashlib.sha256(fingerprint_of_images(images, ()).encode())
    for row in questions:
        digest.update(repr(tuple(row)).encode())
    return digest.hexdigest()


def _most(counts: Counter[str]) -> str:
    """The most frequent, of equal ones the first in alphabetical order."""
    return min(counts, key=lambda answer: (-counts[answer], answer))


def _checked(asked: Asked, where: str) -> Asked:
    """`UserError` where nothing is asked, or a text is blank."""
    if not asked.questions:
        raise UserError(f"{where} has no question")
    for number, row in enumerate(asked.questions, 1):
        if not (row.text.strip() and row.answer.strip()):
            raise UserError(
                f"{where}: question {number} is {row.text!r}, its answer {row.answer!r}; expected a"
                " text for each"
            )
    return asked


def _images(asked: Asked, where: str) -> np.ndarray:
    """The images of a split; `UserError` where they are no such array."""
    images = asked.images()
    if images.dtype != np.uint8 or images.ndim != 4:
        raise UserError(
            f"{where} has {images.dtype} {list(images.shape)}; expected uint8 [N,H,W,C]"
        )
    return images


def _warn(learned: Learned, questions: Sequence[Question], where: str) -> None:
    """A line about answers that training does not have; `UserError` if it has none."""
    strange = Counter(row.answer for row in questions) - Counter()
    strange = Counter({name: n for name, n in strange.items() if name not in learned.classes})
    if not strange:
        return
    first = next(iter(strange))
    if strange.total() == len(questions):
        raise UserError(
            f"{where} has the answer {first!r} and no other that the training split has;"
            f" {nearest(first, learned.classes)}"
        )
    named = ", ".join(sorted(strange)[:5]) + (", ..." if len(strange) > 5 else "")
    _log.warning(
        "%s: %d of %d questions have an answer that the training split does not have (%s): wrong"
        " whatever is answered, and left out of the loss, which would be infinite",
        where,
        strange.total(),
        len(questions),
        named,
    )
