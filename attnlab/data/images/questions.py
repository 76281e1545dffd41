"""Questions about images.

A source of such questions has `visual_questions(split) -> Asked`. An image is kept once, whatever
the number of questions about it. Answers are those of the training split; answer k of C is k + 1 in
a batch, 0 is a row of padding, and C + 1 any answer that only another split has.
"""

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attnlab.data.asked import guesses, most_frequent
from attnlab.data.columns import Examples, Shared, SideBySide
from attnlab.data.dataset import Dataset, Split, fingerprint_of_rows
from attnlab.data.images.labelled import check_images, fingerprint, in_order
from attnlab.data.learned import Learned, classes_of
from attnlab.errors import UserError

QUESTION_ONLY = "question_only"
Box = tuple[int, int, int, int]
"""First row, first column, height and width, in pixels."""


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
        """Counts the answers in the training questions, and finds the most frequent answer in all
        and to each question text.
        """
        self.answers = Counter(question.answer for question in questions)
        of_text: dict[str, Counter[str]] = defaultdict(Counter)
        for question in questions:
            of_text[question.text][question.answer] += 1
        self._best = most_frequent(self.answers)
        self._of_text = {text: most_frequent(counts) for text, counts in of_text.items()}

    def guess(self, text: str) -> str:
        """Returns the most frequent answer to questions of exactly this text in training, or, if
        there was none, to all questions.
        """
        return self._of_text.get(text, self._best)

    def scores(self, questions: Sequence[Question]) -> dict[str, float]:
        """Returns, by name, the accuracy on these questions of baselines without the image: chance,
        the most frequent answer, and the most frequent one to the same text.
        """
        hits = sum(row.answer == self.guess(row.text) for row in questions)
        return {
            **guesses(self.answers, [row.answer for row in questions]),
            QUESTION_ONLY: hits / len(questions),
        }


class QuestionData(Dataset[Question]):
    """The data of a run of questions about images; columns are "image", "question" and "label",
    classes the answers, `prior` are guesses that see no image. The images of training are read only
    where they are needed.
    """

    method = "visual_questions"
    such_as = "sort_of_clevr, easy_vqa or image_questions"
    things = "questions"
    kept = "vocabulary, answers, mean and deviation"
    parts = ("vocabularies", "images")
    guessing = True

    def checked(self, content: Asked, split: str) -> Asked:
        """Returns the questions of a split unchanged, with a function that loads the images once
        and checks them; raises `UserError` for no question at all or a blank question or answer,
        and on loading for images that are not uint8 [N,H,W,C]. See `Dataset.checked`.
        """
        where = self.where(split)
        if not content.questions:
            raise UserError(f"{where} has no question")
        for number, row in enumerate(content.questions, 1):
            if not (row.text.strip() and row.answer.strip()):
                raise UserError(
                    f"{where}: question {number} is {row.text!r}, its answer {row.answer!r}; expected"
                    " a text for each"
                )

        def images() -> np.ndarray:
            """Loads the images of the split; raises `UserError` unless they are uint8 [N,H,W,C]."""
            images = content.images()
            check_images(images, where)
            return images

        return Asked(content.questions, functools.cache(images))

    def learn(self, by_split: Mapping[str, Asked]) -> Learned:
        """Trains the vocabulary on the training questions, loads their images, and returns a
        `Learned` with the vocabulary, the answers (as classes) and the shape, mean and deviation of
        the images. See `Dataset.learn`.
        """
        questions, images = by_split["train"]
        classes = classes_of((row.answer for row in questions), in_order)
        return super().learn(by_split).with_images(images(), classes)

    def texts_of(self, train: Asked) -> Iterable[str]:
        """See `Dataset.texts_of`."""
        return (row.text for row in train.questions)

    def prior_of(self, train: Asked) -> Prior:
        """See `Dataset.prior_of`."""
        return Prior(train.questions)

    def encoded(self, content: Asked, split: str) -> Split:
        """Loads the images of a split and returns its questions as a `Split`, encoded by `encode`,
        with its fingerprint. See `Dataset.encoded`.
        """
        rows, images = content.questions, content.images()
        examples = encode(self.learned, images, rows, self.where(split))
        return Split(rows, examples, fingerprint_of_rows(rows, fingerprint(images, ())))

    def labels(self, split: str) -> np.ndarray:
        """The number of the answer to each question, [N] from 0; C for one that is not known."""
        return self.examples[split]["label"].block(np.arange(self.size(split)), 1) - 1

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the numbers of questions, images, tokens, unknown
        tokens and different answers in training, the image size, and the accuracy of each guess.
        """
        questions, special = self.rows[split], self.vocabulary.special
        ids = self.examples[split].packed("question").ids
        scores = self.prior.scores(questions)
        guesses = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
        return (
            f"{len(questions):,} questions about {len({row.image for row in questions}):,} images"
            f" of {self.learned.size}, {len(ids):,} tokens ({special.unknown(ids):,}"
            f" unknown), {len(self.learned.classes)} answers; accuracy of guesses: {guesses}"
        )


def encode(
    learned: Learned, images: np.ndarray, questions: Sequence[Question], where: str
) -> Examples:
    """Encodes questions as `Examples` with "image" (stored once per image), "question" (ids) and
    "label" (answer number from 1; answers unknown from training share one extra number and are
    logged, or raise `UserError` if all are unknown).

    Raises:
      UserError: images of another size, a question about one that is not there, or no answer that
        is known.
    """
    learned.check(images, where)
    about = np.array([row.image for row in questions], np.int64)
    if not 0 <= about.min() <= about.max() < len(images):
        raise UserError(
            f"{where} has {len(images):,} images and a question about number {about.max()} (from 0)"
        )
    numbers = learned.numbers(
        [row.answer for row in questions],
        f"{where}: %d of %d questions have an answer",
        (f"{where} has the answer ", " and no other that the training split has"),
    )
    texts = learned.vocabulary.packed(row.text for row in questions)
    return Examples(image=Shared(images, about), question=texts, label=numbers)


def together(examples: Examples, about: np.ndarray, per_row: int) -> Examples:
    """Groups questions by their image (`about` [N] image numbers) and returns `Examples` whose rows
    have up to `per_row` = Q of them: "image" once per row, "question" [b,Q,width] and "label"
    [b,Q]; an image with more questions has several rows, and shorter rows are padded.

    Args:
      examples: of questions, as `encode` gives them.
      about: [N], the image of each question.
      per_row: Q.
    """
    order = np.argsort(about, kind="stable")
    _, first, counts = np.unique(about[order], return_index=True, return_counts=True)
    starts = [
        begin + start
        for begin, count in zip(first, counts, strict=True)
        for start in range(0, count, per_row)
    ]
    ends = np.repeat(first + counts, -(-counts // per_row))
    places = np.array(starts)[:, None] + np.arange(per_row)
    rows = np.where(places < ends[:, None], order[np.minimum(places, len(order) - 1)], -1)
    sides = {name: SideBySide(examples[name], rows) for name in ("question", "label")}
    return Examples(image=SideBySide(examples["image"], rows[:, 0]), **sides)
