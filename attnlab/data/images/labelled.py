"""From config to images with labels: source, classes, mean and deviation, and a fingerprint of what
was read.

Images are uint8 [N,H,W,C], all of one size. Classes are the labels of the training split, numbers
by size, names in alphabetical order; class k of C is k + 1 in a batch, 0 is a row of padding.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypedDict, TypeVar

import numpy as np

from attnlab.data import read_splits
from attnlab.data.columns import Examples
from attnlab.data.corpus import giving
from attnlab.errors import UserError, nearest
from attnlab.records.files import write_atomic
from attnlab.records.json_kinds import Damaged, read

_FILE = Path("vocabulary") / "images.json"  # where a run keeps what it learned of its data
PART = 1024  # images whose numbers are counted at a time

Shape = tuple[int, int, int]
Thing = TypeVar("Thing")


class Labelled(NamedTuple):
    """What a source gives of a split: images uint8 [N,H,W,C] and a label for each, names or whole
    numbers.
    """

    images: np.ndarray
    labels: Sequence[str] | np.ndarray


class _Saved(TypedDict):
    """`images.json`."""

    classes: list[str]
    shape: list[int]
    mean: list[float]
    deviation: list[float]
    sha256: str


@dataclasses.dataclass(frozen=True)
class Learned:
    """What a run knows of its training split.

    Attributes:
      classes: the labels, in the order of their numbers; empty where images have none.
      shape: H, W, C of every image.
      mean, deviation: of each channel over all pixels, where 255 is 1; the deviation of a channel
        that is the same everywhere is 1.
    """

    classes: tuple[str, ...]
    shape: Shape
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, images: np.ndarray, labels: Sequence[str]) -> Learned:
        """From the training split; `UserError` where there is nothing to tell apart."""
        classes = sorted({*labels}, key=_in_order)
        if len(classes) < 2:
            raise UserError(
                f"config.data: the training split has no label but {classes[0]!r}; there is nothing"
                " to tell apart"
            )
        mean, deviation = moments(images)
        return cls(tuple(classes), images.shape[1:], mean, deviation)

    @classmethod
    def of_images(cls, images: np.ndarray) -> Learned:
        """From the images of a training split without labels."""
        return cls((), images.shape[1:], *moments(images))

    def check(self, images: np.ndarray, where: str) -> None:
        """`UserError` unless the images of a split have the size of those of training."""
        if images.shape[1:] != self.shape:
            mine, theirs = (" x ".join(map(str, axes)) for axes in (images.shape[1:], self.shape))
            raise UserError(f"{where} has images of {mine}, the training split of {theirs}")

    def normalised(self, images: Any) -> Any:
        """Images [N,H,W,C], NumPy's or JAX's, as float32: (x / 255 - mean) / deviation."""
        mean, deviation = (np.asarray(values, np.float32) for values in (self.mean, self.deviation))
        return (images.astype(np.float32) / 255 - mean) / deviation

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether `save` has been there."""
        return (workdir / _FILE).exists()

    def save(self, workdir: Path) -> None:
        """Write `<workdir>/vocabulary/images.json`, whole or not at all."""
        body, path = dataclasses.asdict(self), workdir / _FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps({**body, "sha256": _digest(body)}, ensure_ascii=False))

    @classmethod
    def load(cls, workdir: Path) -> Learned:
        """What `save` wrote; `UserError` where it is missing or damaged."""
        path = workdir / _FILE
        try:
            content: dict[str, Any] = dict(read(path.read_bytes(), _Saved))
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror or error}") from error
        except Damaged as error:
            raise UserError(f"{path} is damaged ({error}); put back a good copy") from error
        if content.pop("sha256") != _digest(content):
            raise UserError(
                f"{path} is damaged (its checksum does not match); put back a good copy"
            )
        height, width, channels = content["shape"]
        mean, deviation = tuple(content["mean"]), tuple(content["deviation"])
        return cls(tuple(content["classes"]), (height, width, channels), mean, deviation)


@dataclasses.dataclass(frozen=True)
class Pictures:
    """The data of a run that reads images alone.

    Attributes:
      asks: the method of a source that gives them.
      such_as: names of sources that have it.
      examples: split to its columns, "image" among them.
      learned: classes, size, mean and deviation.
      fingerprints: split to the hash of its images and what is told of them, for the manifest.
    """

    kept: ClassVar[str] = "classes, mean and deviation"
    things: ClassVar[str] = "images"
    asks: ClassVar[str]
    such_as: ClassVar[str]

    examples: Mapping[str, Examples]
    learned: Learned
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def source(cls, data: Mapping[str, Any]) -> Any:
        """The source of a config node; `UserError` unless it has what is asked for."""
        return giving(data, cls.asks, cls.such_as)

    @classmethod
    def load(
        cls,
        data: Mapping[str, Any],
        workdir: Path | None = None,
        splits: Sequence[str] = ("train", "valid"),
    ) -> Self:
        """Read the splits of a source; `UserError`."""
        raise NotImplementedError

    @property
    def splits(self) -> tuple[str, ...]:
        """Those that were read."""
        return tuple(self.examples)

    def size(self, split: str) -> int:
        """The number of images."""
        return len(self.examples[split])

    def about(self, split: str) -> str:
        """Number, size and classes, in a line."""
        height, width, channels = self.learned.shape
        return (
            f"{self.size(split):,} images of {height} x {width} x {channels};"
            f" {len(self.learned.classes)} classes"
        )

    def save(self, workdir: Path) -> None:
        """Keep classes, size, mean and deviation with a run."""
        self.learned.save(workdir)

    @staticmethod
    def saved(workdir: Path) -> bool:
        """Whether `save` has been there."""
        return (workdir / _FILE).exists()


class ImageData(Pictures):
    """The data of a run of classification; the columns are "image" and "label"."""

    asks = "images"
    such_as = "shapes, idx, npz, image_folder or tfds_images"

    @classmethod
    def load(
        cls,
        data: Mapping[str, Any],
        workdir: Path | None = None,
        splits: Sequence[str] = ("train", "valid"),
        before: Learned | None = None,
    ) -> Self:
        """Read the splits of a source.

        Classes, mean and deviation come from `<workdir>/vocabulary/` if they are there, else from
        `before`, of whose size images need not be. Else they are learned, on the training split and
        nothing else; `ImageData.save` keeps them.

        Raises:
          UserError: bad config, unreadable data, images of another size or a label that the training
            split does not have, fewer than two classes, or what was saved is damaged.
        """
        of, where = cls.source(data), f"config.data={data['name']}"
        folder = workdir if workdir is not None and cls.saved(workdir) else None
        by_split = read_splits(
            lambda split: _checked(of.images(split), f"{where}: the {split} split"),
            splits,
            learn=folder is None and before is None,
        )
        if folder is not None:
            learned = Learned.load(folder)
        elif before is not None:
            shapes = [images.shape[1:] for images, _ in by_split.values()]
            learned = dataclasses.replace(before, shape=shapes[0] if shapes else before.shape)
        else:
            learned = Learned.of(*by_split["train"])
        origin = (
            "the training split"
            if before is None
            else (
                "the model of pretrained.folder (for classes of your own set pretrained.take=matching)"
            )
        )
        chosen = {split: by_split[split] for split in splits}
        return cls(
            {
                split: _encoded(learned, *part, f"{where}: the {split} split", origin)
                for split, part in chosen.items()
            },
            learned,
            {split: fingerprint(*part) for split, part in chosen.items()},
        )

    def labels(self, split: str) -> np.ndarray:
        """The class of each image, [N] from 0."""
        return self.examples[split]["label"].block(np.arange(self.size(split)), 1) - 1

    def about(self, split: str) -> str:
        """Number, size and classes, in a line."""
        height, width, channels = self.learned.shape
        counts = np.bincount(self.labels(split), minlength=len(self.learned.classes))
        return (
            f"{self.size(split):,} images of {height} x {width} x {channels};"
            f" {len(counts)} classes of {counts.min():,} to {counts.max():,}"
        )


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Base of the sources that have no validation split of their own and cut it from training.

    Attributes:
      held_out: share of the training images that are for validation.
      seed: which these are.
      examples: how many of the others to train on; 0 takes all. What is taken of few is also taken
        of more.

    Raises:
      UserError: no share, or a negative seed or number.
    """

    held_out: float = 0.1
    seed: int = 0
    examples: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.held_out < 1.0:
            raise UserError(f"config.data.held_out={self.held_out} must be above 0 and below 1")
        for name in ("seed", "examples"):
            if getattr(self, name) < 0:
                raise UserError(f"config.data.{name}={getattr(self, name)} must be 0 or more")

    def rows(self, split: str, count: int) -> np.ndarray:
        """Which of the `count` training images belong to "train" or to "valid", in their order.

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

    def part(self, split: str, given: Sequence[Thing], own: bool) -> list[Thing]:
        """Those of a split, of all that its file or folder has: every one where validation has its
        own (`own`), as the test has; else those of `rows`. Of training, `examples`.

        Raises:
          UserError: there are fewer.
        """
        chosen = list(given)
        if not own and split != "test":
            chosen = [given[row] for row in self.rows(split, len(given))]
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
    """SHA-256 (hex) of images and labels in their order."""
    digest = hashlib.sha256(repr((images.shape, list(labels))).encode())
    for begin in range(0, len(images), PART):
        digest.update(images[begin : begin + PART].tobytes())
    return digest.hexdigest()


def check_images(images: np.ndarray, where: str) -> None:
    """`UserError` unless these are images, and at least one."""
    if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
        raise UserError(
            f"{where} has {images.dtype} {list(images.shape)}; expected uint8 [N,H,W,C], N at least 1"
        )


def _checked(given: Labelled, where: str) -> tuple[np.ndarray, list[str]]:
    """What a source gave, labels as names."""
    images, labels = given.images, [str(label) for label in given.labels]
    check_images(images, where)
    if len(images) != len(labels):
        raise UserError(f"{where} has {len(images)} images and {len(labels)} labels")
    return images, labels


def _encoded(
    learned: Learned, images: np.ndarray, labels: Sequence[str], where: str, origin: str
) -> Examples:
    """The columns of a split; `origin`: what the classes are from."""
    learned.check(images, where)
    numbers = {name: number for number, name in enumerate(learned.classes, 1)}
    for label in labels:
        if label not in numbers:
            raise UserError(
                f"{where} has the label {label!r}, which {origin} does not have;"
                f" {nearest(label, learned.classes)}"
            )
    return Examples(image=images, label=np.array([numbers[label] for label in labels], np.int32))


def moments(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of images [N,H,W,C], exact but for the last rounding."""
    channels, values = images.shape[-1], np.arange(256) / 255
    counts = np.zeros((channels, 256))
    for begin in range(0, len(images), PART):
        part = images[begin : begin + PART]
        for channel in range(channels):
            counts[channel] += np.bincount(part[..., channel].ravel(), minlength=256)
    share = counts / counts.sum(axis=1, keepdims=True)
    mean = share @ values
    deviation = np.sqrt((share * np.square(values - mean[:, None])).sum(axis=1))
    return tuple(mean.tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist())


def _in_order(label: str) -> tuple[bool, int, str]:
    """Numbers by size, before names by the alphabet."""
    number = label.isascii() and label.isdecimal() and len(label) < 19
    return not number, int(label) if number else 0, label


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
