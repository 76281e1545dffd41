"""Images and what is told of them, and what their sources and the data of runs share: a label for each
image, captions, objects with boxes, the class of every pixel. All images are uint8, of one size.

Axis letters: N images, H height, W width, C channels, K objects of an image.
"""

import dataclasses
import hashlib
import random
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from attnlab.data.columns import Examples
from attnlab.data.dataset import Dataset, Row, Split
from attnlab.data.generated import within
from attnlab.data.learned import PART, Learned, Shape, classes_of
from attnlab.errors import UserError

Thing = TypeVar("Thing")


class Labelled(NamedTuple):
    """What a source gives of a split: images uint8 [N,H,W,C] and a label for each, names or whole
    numbers.
    """

    images: np.ndarray
    labels: Sequence[str] | np.ndarray


class Shown(NamedTuple):
    """Which object of its image each word of a caption is about.

    Attributes:
      words: for each caption a number for each of its words (what stands between blanks): k for the
        object k, -1 for none.
      objects: uint8 [N,H,W], k + 1 at the pixels of object k and 0 on the ground.
      named: the words that tell what an object is, by which localisation is judged.
    """

    words: Sequence[Sequence[int]]
    objects: np.ndarray
    named: frozenset[str]


class Captioned(NamedTuple):
    """Images, each with a caption.

    Attributes:
      images: uint8 [N,H,W,C].
      captions: a text for each.
      shown: what the words are about, where the source knows that.
    """

    images: np.ndarray
    captions: Sequence[str]
    shown: Shown | None = None


class Boxed(NamedTuple):
    """Images, each with all of its objects.

    Attributes:
      images: uint8 [N,H,W,C].
      labels: for each image the labels of its K objects.
      boxes: for each image numbers [K,4], the box of each object in pixels: first row, first column,
        height, width.
      classes: all labels that there can be, in the order of their numbers.
      unlearned: for each image what nobody learns, but AP knows: label, box as above, and whether it
        is a crowd region (more objects than were told apart) or an object without an extent.
    """

    images: np.ndarray
    labels: Sequence[Sequence[str]]
    boxes: Sequence[np.ndarray]
    classes: Sequence[str]
    unlearned: Sequence[Sequence[tuple[str, np.ndarray, bool]]] = ()


class Segmented(NamedTuple):
    """Images, each with the class of every pixel.

    Attributes:
      images: uint8 [N,H,W,C].
      masks: int32 [N,H,W], k + 1 at the pixels of class k, 0 on the ground, and -1 where a pixel is
        left open.
      classes: their names, in the order of their numbers.
    """

    images: np.ndarray
    masks: np.ndarray
    classes: Sequence[str]


class Pictures(Dataset[Row]):
    """Base of the data of runs that read images alone; a column is "image"."""

    things = "images"
    kept = "classes, mean and deviation"
    parts = ("images",)

    def size(self, split: str) -> int:
        """The number of images."""
        return len(self.examples[split])

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the number and size of its images, and the number
        of classes.
        """
        count, learned = self.size(split), self.learned
        return f"{count:,} images of {learned.size}; {len(learned.classes)} classes"


@dataclasses.dataclass(frozen=True)
class ImageData(Pictures[str]):
    """The data of a run of classification; rows are labels, the columns "image" and "label".

    Classes are the labels of the training split, numbers by size, names in alphabetical order; class k
    of C is k + 1 in a batch, 0 is a row of padding.

    Attributes:
      pretrained: what another model has learned, taken instead; images need not be of its size.
    """

    method = "images"
    such_as = "shapes, idx, npz, image_folder or tfds_images"

    pretrained: Learned | None = None

    def checked(self, content: Labelled, split: str) -> Labelled:
        """Returns the images of a split and their labels, made str, as `Labelled`; raises `UserError`
        unless they are uint8 [N,H,W,C] with as many labels. See `Dataset.checked`.
        """
        where, images, labels = self.where(split), content.images, list(map(str, content.labels))
        check_images(images, where, labels=labels)
        return Labelled(images, labels)

    @property
    def learns(self) -> bool:
        """See `Dataset.learns`."""
        return self.pretrained is None

    def learn(self, by_split: Mapping[str, Labelled]) -> Learned:
        """Returns a `Learned` with the classes, at least two, and the shape, mean and deviation of
        the training images, or, if `pretrained` is given, that with the shape of the images. See
        `Dataset.learn`.
        """
        if self.pretrained is not None:
            shapes = [images.shape[1:] for images, _ in by_split.values()]
            return dataclasses.replace(self.pretrained, shape=(*shapes, self.pretrained.shape)[0])
        images, labels = by_split["train"]
        return Learned().with_images(images, classes_of(labels, in_order))

    def encoded(self, content: Labelled, split: str) -> Split:
        """Encodes a split as a `Split` with the columns "image" and "label" (class number + 1);
        raises `UserError` for a label unknown from training or another image size. See
        `Dataset.encoded`.
        """
        where, images, labels = self.where(split), content.images, list(content.labels)
        self.learned.check(images, where)
        origin = (
            "the training split"
            if self.pretrained is None
            else "the model of pretrained.folder (for classes of your own set pretrained.take=matching)"
        )
        refused = f"{where} has the label ", f", which {origin} does not have"
        numbers = self.learned.numbers(labels, "", refused, strict=True)
        return Split(labels, Examples(image=images, label=numbers), fingerprint(images, labels))

    def labels(self, split: str) -> np.ndarray:
        """The class of each image, [N] from 0."""
        return self.examples[split]["label"].block(np.arange(self.size(split)), 1) - 1

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the number and size of images, the number of
        classes, and the smallest and largest number of images of one.
        """
        counts = np.bincount(self.labels(split), minlength=len(self.learned.classes))
        return f"{super().about(split)} of {counts.min():,} to {counts.max():,}"


class Resized:
    """Part of the sources whose images are resized to a `side`, in grey or in colours.

    Attributes:
      least: of `side`.
      side: height and width of every image, in pixels; 0 leaves images as they are.
      grey: one channel instead of three.
    """

    least: ClassVar[int] = 0
    side: int
    grey: bool = False

    def __post_init__(self) -> None:
        """Raises `UserError` for a side out of range, after the checks of the class behind this."""
        if hasattr(super(), "__post_init__"):
            super().__post_init__()  # type: ignore[misc]
        within("side", self.side, self.least, 4096)

    @property
    def shape(self) -> Shape | None:
        """H, W, C of every image; None where that is not known before they are read."""
        return (self.side, self.side, 1 if self.grey else 3) if self.side else None


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Base of the sources that have no validation split of their own and cut it from training.

    Attributes:
      held_out: share of the training images that are for validation.
      seed: decides which images these are.
      examples: how many of the others to train on; 0 takes all. What is taken of few is also taken
        of more.

    Raises:
      UserError: no share, or a negative seed or number.
    """

    held_out: float = 0.1
    seed: int = 0
    examples: int = 0

    def __post_init__(self) -> None:
        """Raises `UserError` unless `held_out` is between 0 and 1, and `seed` and `examples` are
        not negative.
        """
        if not 0.0 < self.held_out < 1.0:
            raise UserError(f"config.data.held_out={self.held_out} must be above 0 and below 1")
        for name in ("seed", "examples"):
            within(name, getattr(self, name), 0)

    def rows(self, split: str, count: int) -> np.ndarray:
        """Returns the sorted numbers of those of `count` training images that a random division by
        `seed` puts into `split`, "train" or "valid"; raises `UserError` if either would be empty.

        Raises:
          UserError: there are too few for two splits.
        """
        held = round(self.held_out * count)
        if not 0 < held < count:
            raise UserError(
                f"config.data.held_out={self.held_out}: of {count} training images, {held} would be"
                " for validation; both splits need one"
            )
        chosen = np.zeros(count, bool)
        chosen[random.Random(f"held out {self.seed}").sample(range(count), held)] = True
        return np.flatnonzero(chosen == (split == "valid"))

    def part(self, split: str, items: Sequence[Thing], own: bool) -> list[Thing]:
        """Returns those `items` that belong to a split: all for "test" or with files of its own
        (`own`), else the `rows` of "train" or "valid"; for "train" a random `examples` of them if
        that is not 0.

        Raises:
          UserError: there are fewer.
        """
        chosen = list(items)
        if not own and split != "test":
            chosen = [items[row] for row in self.rows(split, len(items))]
        if split != "train" or not self.examples:
            return chosen
        if self.examples > len(chosen):
            raise UserError(
                f"config.data.examples={self.examples}: there are {len(chosen)} to train on; write"
                " at most as many, or 0 for all"
            )
        order = list(range(len(chosen)))
        random.Random(f"examples {self.seed}").shuffle(order)
        return [chosen[number] for number in sorted(order[: self.examples])]


def fingerprint(images: np.ndarray, labels: Sequence[str]) -> str:
    """Returns the SHA-256 (hex) of images and labels in their order."""
    digest = hashlib.sha256(repr((images.shape, list(labels))).encode())
    for begin in range(0, len(images), PART):
        digest.update(images[begin : begin + PART].tobytes())
    return digest.hexdigest()


def check_images(images: np.ndarray, where: str, **beside: Sequence[str]) -> None:
    """Raises `UserError` unless these are images, uint8 [N,H,W,C], at least one, with as many texts in
    each of the sequences `beside`, which errors call by their keys.
    """
    if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
        raise UserError(
            f"{where} has {images.dtype} {list(images.shape)}; expected uint8 [N,H,W,C], N at least 1"
        )
    for name, texts in beside.items():
        if len(texts) != len(images):
            raise UserError(f"{where} has {len(images)} images and {len(texts)} {name}")


def in_order(label: str) -> tuple[bool, int, str]:
    """Returns the sort key of a label, by which numbers are sorted by value, and before names,
    which are sorted by alphabet.
    """
    number = label.isascii() and label.isdecimal() and len(label) < 19
    return not number, int(label) if number else 0, label
