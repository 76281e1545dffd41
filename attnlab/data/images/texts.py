"""Images with texts: captions, also from a folder of images and a file of captions; and questions with
answers.

A source of questions has `visual_questions(split) -> Asked`. An image is kept once, whatever the
number of questions about it. Answers are those of the training split; answer k of C is k + 1 in a
batch, 0 is a row of padding, and C + 1 any answer that only another split has.
"""

import dataclasses
import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attnlab.data.asked import guesses, most_frequent
from attnlab.data.columns import Examples, Shared, SideBySide
from attnlab.data.dataset import Dataset, Split, fingerprint_of_rows
from attnlab.data.files import find_file, read_lines
from attnlab.data.images.annotated import Captioned, check_images, fingerprint, in_order
from attnlab.data.images.files import ImageFiles
from attnlab.data.json_files import objects_of, text_of
from attnlab.data.learned import Learned, classes_of
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError


class CaptionData(Dataset[str]):
    """The data of a run of captioning; rows are captions, columns "source", the images, and "target",
    the ids of the captions; `extra` has what the words are about, where the source knows that.
    """

    method = "captions"
    such_as = "scenes, caption_folder, coco_captions or tfds_images"
    things = "captions"
    kept = "vocabulary, mean and deviation"
    parts = ("target", "images")

    def checked(self, content: Captioned, split: str) -> Captioned:
        """Returns the images and captions of a split unchanged; raises `UserError` for bad images,
        or unless there are as many images as captions. See `Dataset.checked`.
        """
        check_images(content.images, self.where(split), captions=content.captions)
        return content

    def learn(self, by_split: Mapping[str, Captioned]) -> Learned:
        """Trains the vocabulary on the training captions and returns a `Learned` with it and the
        shape, mean and deviation of the images. See `Dataset.learn`.
        """
        images, captions, _ = by_split["train"]
        vocabulary = Vocabulary.train(captions, **self.settings.arguments)
        return Learned(target=vocabulary).with_images(images)

    def encoded(self, content: Captioned, split: str) -> Split:
        """Encodes a split as a `Split` with "source" (images) and "target" (ids of captions); raises
        `UserError` if the images differ in shape from training. See `Dataset.encoded`.
        """
        images, captions, shown = content
        self.learned.check(images, self.where(split))
        examples = encoded(self.vocabulary, images, captions)
        return Split(captions, examples, fingerprint(images, captions), shown)

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the number and size of its images, its tokens and
        unknown tokens.
        """
        tokens = self.about_tokens(split, "target")
        return f"{self.size(split):,} images of {self.learned.size}; {tokens}"


def encoded(vocabulary: Vocabulary, images: np.ndarray, captions: Sequence[str]) -> Examples:
    """The columns of images with captions, EOS at the end of each."""
    return Examples(source=images, target=vocabulary.packed(captions))


@dataclasses.dataclass(frozen=True)
class CaptionFolder(ImageFiles):
    """A folder of PNG and JPEG files, and a file of captions for each split: JSON lines with the
    fields "file" and "caption" (a name that ends in .jsonl), or "file TAB caption" (any other).

    A file may have several captions, each an example; none of them is then held out without the
    others.

    Attributes:
      directory: where the images lie, and the files of captions; "" for the current folder.
      train, test: names of the files of captions.
      valid: that of validation; "" for a part of the images of training (`held_out`).
    """

    train: str = "train.tsv"
    valid: str = ""
    test: str = "test.tsv"

    def captions(self, split: str) -> Captioned:
        """Reads the captions of `split` and returns them as `Captioned`, with one image per
        caption, read once where several captions share it; without a file for "valid", some
        training images are held out for it.

        Raises:
          UserError: a file that is missing, a line without a name or a caption, an image that is
            missing or damaged; with file and line.
        """
        has_file = bool(self.valid) or split == "test"
        path = find_file(self.directory, getattr(self, split if has_file else "train"))
        lines = _lines(path)
        names = {*self.part(split, list(dict.fromkeys(name for _, name, _ in lines)), has_file)}
        lines = [line for line in lines if line[1] in names]
        row_of = {name: row for row, name in enumerate(dict.fromkeys(name for _, name, _ in lines))}
        first = {path.parent / name: where for where, name, _ in reversed(lines)}

        def read(file: Path) -> np.ndarray:
            """Reads an image; raises `UserError` with the line that names it first."""
            try:
                return self.read(file)
            except UserError as error:
                raise UserError(f"{first[file]}: {error}") from error

        images = self.read_all([path.parent / name for name in row_of], read)
        rows = [row_of[name] for _, name, _ in lines]
        return Captioned(images[rows], [text for _, _, text in lines])


def _lines(path: Path) -> list[tuple[str, str, str]]:
    """Returns a list of (location for error messages, image name, caption), one for each line of a
    captions file that is not blank; raises `UserError` if a line lacks the name or the caption, or
    if all lines are blank.
    """
    if path.name.removesuffix(".gz").removesuffix(".xz").endswith(".jsonl"):
        rows = [
            (where, text_of(record, "file", where), text_of(record, "caption", where))
            for where, record in objects_of(path)
        ]
    else:
        rows = [
            (f"{path}, line {number}", *_cells(line, f"{path}, line {number}"))
            for number, line in enumerate(read_lines(path), 1)
            if line
        ]
    if not rows:
        raise UserError(f"{path} holds nothing but blank lines")
    return rows


def _cells(line: str, where: str) -> tuple[str, str]:
    """Splits a line at the first tab into the image name and the caption; raises `UserError` if one
    is blank.
    """
    name, _, caption = (part.strip() for part in line.partition("\t"))
    if not name or not caption:
        raise UserError(f"{where}: expected 'file TAB caption', both not empty")
    return name, caption


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
        questions, tokens = self.rows[split], self.about_tokens(split, "question")
        scores = self.prior.scores(questions)
        guesses = ", ".join(f"{name} {score:.3f}" for name, score in scores.items())
        return (
            f"{len(questions):,} questions about {len({row.image for row in questions}):,} images"
            f" of {self.learned.size}, {tokens}, {len(self.learned.classes)} answers; accuracy of"
            f" guesses: {guesses}"
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
