"""Texts, or pairs of them, with a label each, as ids.

A pair of texts is read with one vocabulary. Classes are the labels of the training split, in
alphabetical order; class k of C is k + 1 in a batch, 0 is a row of padding, and C + 1 any label
that only another split has.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attnlab.data.columns import Examples
from attnlab.data.dataset import Dataset, Split, fingerprint_of_texts
from attnlab.data.learned import SIDES, Learned, classes_of
from attnlab.errors import UserError

Labelled = tuple[tuple[str, ...], str]


@dataclasses.dataclass(frozen=True)
class LabelledTexts(Dataset[Labelled]):
    """The data of a run of labelled texts; rows are (texts, label) as read.

    Attributes:
      answer: a label to numbers, where labels are no classes; see `answered`.
    """

    method = "labelled"
    things = "examples"
    kept = "vocabulary or labels"
    parts = ("vocabularies", "labels")

    answer: Callable[[str], Any] | None = None

    def learn(self, by_split: Mapping[str, Sequence[Labelled]]) -> Learned:
        """Returns a `Learned` of the training split with its vocabulary, its classes (none if
        labels are numbers) and whether an example has 1 or 2 texts; raises `UserError` for mixed
        examples, a single class or vocabularies not shared. See `Dataset.learn`.
        """
        if not self.settings.shared:
            raise UserError(
                "config.vocabulary.shared=False: the texts of a pair are read with one vocabulary"
                " here; leave it True"
            )
        train = by_split["train"]
        counts = {len(texts) for texts, _ in train}
        if len(counts) != 1 or not counts <= {1, 2}:
            raise UserError(
                "config.data: every example must have one text, or every one two; the training split"
                f" has {sorted(counts)}"
            )
        names = classes_of(label for _, label in train) if self.answer is None else []
        learned = super().learn(by_split)
        return dataclasses.replace(learned, classes=tuple(names), sentences=counts.pop())

    def texts_of(self, train: Sequence[Labelled]) -> Iterable[str]:
        """See `Dataset.texts_of`."""
        return (text for texts, _ in train for text in texts)

    def encoded(self, content: Sequence[Labelled], split: str) -> Split:
        """Encodes the labelled texts of a split, by `encode` or, where labels are numbers, by
        `answered`, and returns them as a `Split` with its fingerprint. See `Dataset.encoded`.
        """
        columns = encode if self.answer is None else functools.partial(answered, answer=self.answer)
        rows = ((*texts, label) for texts, label in content)
        examples = columns(self.learned, content, split)
        return Split(content, examples, fingerprint_of_texts(rows, counted=True))

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the numbers of examples, tokens and unknown
        tokens, and, if there are classes, how often each label occurs.
        """
        tokens = self.about_tokens(split, *SIDES[: self.learned.sentences])
        kind = "pairs" if self.learned.sentences == 2 else "texts"
        sizes = f"{len(self.rows[split]):,} {kind}, {tokens}"
        if not self.learned.classes:
            return sizes
        counts, names = Counter(label for _, label in self.rows[split]), self.learned.classes
        labels = (f"{name} {counts[name]:,}" for name in (*names, *sorted({*counts} - {*names})))
        return f"{sizes}; {', '.join(labels)}"


def encode(learned: Learned, rows: Sequence[Labelled], split: str) -> Examples:
    """Encodes labelled texts as `Examples` with "source" (and "target" for pairs), ids, and "label"
    (class number from 1; labels unknown from training share one extra number and are logged, or
    raise `UserError` in "train" or if all are unknown).

    Raises:
      UserError: an example with more or fewer texts than those of training; such a label in the
        training split, or no other in a split.
    """
    _check_texts(learned, rows, split)
    numbers = learned.numbers(
        [label for _, label in rows],
        f"%d of %d examples of the {split} split have a label",
        (f"the {split} split has the label ", ", which the training split does not have"),
        strict=split == "train",
    )
    return encode_texts(learned, [texts for texts, _ in rows], label=numbers)


def answered(
    learned: Learned, rows: Sequence[Labelled], split: str, answer: Callable[[str], Any]
) -> Examples:
    """Encodes labelled texts as `Examples` with "source" (and "target" for pairs), ids, and "label"
    float32, the numbers or equally shaped arrays that `answer` returns for the labels; raises
    `UserError` for any other answer.

    Raises:
      UserError: an example with more or fewer texts than those of training, a label that `answer`
        refuses, or an answer that is not finite or of another shape than the first one, and where
        it stands.
    """
    _check_texts(learned, rows, split)
    truth: list[np.ndarray] = []
    for number, (_, label) in enumerate(rows, 1):
        try:
            truth.append(_finite_numbers(label, answer(label)))
            if truth[-1].shape != truth[0].shape:
                shapes = f"of shape {truth[-1].shape}, {rows[0][1]!r} of example 1 {truth[0].shape}"
                raise UserError(
                    f"label {label!r} means an array {shapes}; all answers must have one shape"
                )
        except UserError as error:
            raise UserError(
                f"config.data: example {number} of the {split} split: {error}"
            ) from error
    numbers = np.asarray(truth, np.float32)
    return encode_texts(learned, [texts for texts, _ in rows], label=numbers)


def _finite_numbers(label: str, answer: Any) -> np.ndarray:
    """Converts `answer`, the number or array that a label stands for, to a float32 array; raises
    `UserError`, with the label, unless all its numbers are finite.
    """
    try:
        with np.errstate(over="ignore"):
            numbers = np.asarray(answer, np.float32)
    except (TypeError, ValueError):  # rows of several lengths, words
        numbers = np.asarray(np.nan)
    if not np.isfinite(numbers).all():
        raise UserError(f"label {label!r} means {answer}, expected finite float32 numbers")
    return numbers


def _check_texts(learned: Learned, rows: Sequence[Labelled], split: str) -> None:
    """Raises `UserError` if an example of a split has another number of texts than those of
    training.
    """
    for number in {len(texts) for texts, _ in rows} - {learned.sentences}:
        advice = (
            "name as many columns or features in config.data.source and config.data.target as in"
            " training"
        )
        raise UserError(
            f"config.data: the {split} split has an example with {number} text(s), training had"
            f" {learned.sentences}; {advice}"
        )


def encode_texts(
    learned: Learned, texts: Sequence[Sequence[str]], **further: np.ndarray
) -> Examples:
    """Encodes texts as `Examples` with the column "source", and the second texts of pairs as
    "target", ids with EOS at the end of each; `further` columns stand beside them.
    """
    sides = {
        name: learned.vocabulary.packed(example[side] for example in texts)
        for side, name in enumerate(SIDES[: learned.sentences])
    }
    return Examples(**sides, **further)
