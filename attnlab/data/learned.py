"""What a run learns of its training split, and keeps in its folder `vocabulary`, each file with a
checksum:

    shared.json                 the vocabulary of all texts
    source.json, target.json    those of two sides; captions have the second alone
    labels.json                 the classes of texts, and how many texts an example has
    images.json                 the classes of images, their size, mean and deviation
"""

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np

from attnlab.config import read_settings
from attnlab.config.schema import Node
from attnlab.data.json_files import read_sealed, write_sealed
from attnlab.data.settings import TwoVocabularies
from attnlab.data.vocabulary import TOKENIZER, Vocabulary
from attnlab.errors import UserError, nearest

SIDES = ("source", "target")
Shape = tuple[int, int, int]
PART = 1024  # images whose numbers are counted at a time
_FOLDER = "vocabulary"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(TwoVocabularies):
    """The config node `vocabulary`, see `attnlab.data.settings`, and what each side makes of it."""

    @classmethod
    def read(cls, node: Mapping[str, Any] | Node) -> "VocabularySettings":
        """Returns the settings in a config node, with defaults for what it leaves out.

        Raises:
          UserError: unknown key, a value of the wrong type, or one vocabulary of two kinds.
        """
        return read_settings(cls, node, "vocabulary")

    @property
    def arguments(self) -> dict[str, Any]:
        """Returns a dict of the settings of the shared vocabulary, or of the source vocabulary if
        there are two, as keyword arguments of `Vocabulary.train`; a trained vocabulary has the same
        dict as `settings`.
        """
        return {
            "kind": self.kind,
            "size": self.size,
            "min_frequency": self.min_frequency,
            "lowercase": self.lowercase,
            **({"reserved": self.reserved} if self.reserved else {}),
            **({"file": self.file} if self.kind == TOKENIZER else {}),
        }

    @property
    def target_arguments(self) -> dict[str, Any]:
        """The same of the target."""
        return {**self.arguments, "kind": self.target_kind or self.kind}


class _Labels(TypedDict):
    """`labels.json`."""

    labels: list[str]
    sentences: Literal[1, 2]
    sha256: str


class _Images(TypedDict):
    """`images.json`."""

    classes: list[str]
    shape: list[int]
    mean: list[float]
    deviation: list[float]
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What is known of the training split; each kind of data has some of it.

    Attributes:
      source, target: the vocabularies, one object where they are shared; captions have a target only.
      classes: the labels, in the order of their numbers; empty where labels are no classes.
      sentences: how many texts an example has, where texts are labelled.
      shape: H, W, C of every image.
      mean, deviation: of each channel over all pixels, where 255 is 1; the deviation of a channel
        that is the same everywhere is 1.
    """

    source: Vocabulary | None = None
    target: Vocabulary | None = None
    classes: tuple[str, ...] = ()
    sentences: int = 0
    shape: Shape = (0, 0, 0)
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()

    @classmethod
    def of_vocabulary(cls, vocabulary: Vocabulary, **fields: Any) -> "Learned":
        """One vocabulary of all texts, and what else is known."""
        return cls(source=vocabulary, target=vocabulary, **fields)

    def with_images(self, images: np.ndarray, classes: Sequence[str] = ()) -> "Learned":
        """Returns a copy with these classes and the shape, mean and deviation of the training
        images [N,H,W,C].
        """
        mean, deviation = moments(images)
        shape = images.shape[1:]
        return dataclasses.replace(
            self, classes=tuple(classes), shape=shape, mean=mean, deviation=deviation
        )

    @property
    def vocabulary(self) -> Vocabulary:
        """Returns the vocabulary of the target, or of all texts; raises `AttributeError` if there
        is none.
        """
        if self.target is None:
            raise AttributeError("these data have no vocabulary")
        return self.target

    @property
    def vocabularies(self) -> tuple[Vocabulary, Vocabulary]:
        """Returns the vocabularies of source and target, the same object twice if they are
        shared.
        """
        assert self.source is not None
        return self.source, self.vocabulary

    @property
    def size(self) -> str:
        """Height, width and channels of every image in words."""
        return " x ".join(map(str, self.shape))

    def check(self, images: np.ndarray, where: str) -> None:
        """Raises `UserError` unless the images have the shape of the training images."""
        if images.shape[1:] != self.shape:
            size = " x ".join(map(str, images.shape[1:]))
            raise UserError(f"{where} has images of {size}, the training split of {self.size}")

    def numbers(
        self, labels: Sequence[str], things: str, error_parts: tuple[str, str], strict: bool = False
    ) -> np.ndarray:
        """Returns the class number of each label, [N] int32 from 1; labels unknown from training
        share the number after the last, which is logged (as `things`), or raise `UserError` (with
        `error_parts` around the label) if `strict` or all are unknown.

        Args:
          labels: of a split.
          things: what has them, to be logged.
          error_parts: what stands before and behind the label in an error message.
          strict: whether training has all labels.

        Raises:
          UserError: training has none of the labels or, if `strict`, not all.
        """
        numbers = {name: number for number, name in enumerate(self.classes, 1)}
        unknown = Counter(label for label in labels if label not in numbers)
        if unknown and (strict or unknown.total() == len(labels)):
            first = next(iter(unknown))
            raise UserError(repr(first).join(error_parts) + f"; {nearest(first, self.classes)}")
        if unknown:
            listed = ", ".join(sorted(unknown)[:5]) + (", ..." if len(unknown) > 5 else "")
            _log.warning(
                things + " that the training split does not have (%s): wrong whatever is answered,"
                " and left out of the loss, which would be infinite",
                unknown.total(),
                len(labels),
                listed,
            )
        return np.array([numbers.get(label, len(numbers) + 1) for label in labels], np.int32)

    def normalised(self, images: Any) -> Any:
        """Computes (x / 255 - mean) / deviation, float32, of images x [N,H,W,C] (NumPy's or JAX's)
        by channel.
        """
        mean, deviation = (np.asarray(values, np.float32) for values in (self.mean, self.deviation))
        return (images.astype(np.float32) / 255 - mean) / deviation

    def save(self, workdir: Path) -> None:
        """Writes the vocabularies, classes and image statistics that are known as JSON files into
        `<workdir>/vocabulary/`, each file atomically.
        """
        folder = workdir / _FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        if self.target is not None and self.source is self.target:
            self.target.save(folder / "shared.json")
        else:
            for side, vocabulary in zip(SIDES, (self.source, self.target), strict=True):
                if vocabulary is not None:
                    vocabulary.save(folder / f"{side}.json")
        if self.sentences:
            body = {"labels": list(self.classes), "sentences": self.sentences}
            write_sealed(folder / "labels.json", body)
        if self.mean:
            names = ("classes", "shape", "mean", "deviation")
            write_sealed(folder / "images.json", {name: getattr(self, name) for name in names})

    @classmethod
    def load(
        cls, workdir: Path, parts: Sequence[str], settings: VocabularySettings | None = None
    ) -> "Learned":
        """Returns a `Learned` with the `parts` ("vocabularies", "target", "labels", "images")
        loaded from the files that `save` wrote into `workdir`; raises `UserError` if a checksum or
        the vocabulary settings do not match.

        Args:
          workdir: of a run.
          parts: what is to be read: "vocabularies" of all texts, "target" of captions, "labels",
            "images".
          settings: that the vocabularies must have.

        Raises:
          UserError: a file that is missing or damaged, a vocabulary of other settings.
        """
        folder, values = workdir / _FOLDER, dict[str, Any]()
        if "vocabularies" in parts:
            values |= zip(SIDES, load_vocabularies(workdir, settings), strict=True)
        if "target" in parts:
            values["target"] = vocabulary = Vocabulary.load(folder / "target.json")
            if settings is not None and vocabulary.settings != settings.arguments:
                raise UserError(
                    f"{folder / 'target.json'} was made with other settings than config.vocabulary;"
                    " take another workdir"
                )
        if "labels" in parts:
            path = folder / "labels.json"
            body = read_sealed(path, _Labels, f"the labels {path}", ("are", "their"))
            values |= {"classes": tuple(body["labels"]), "sentences": body["sentences"]}
        if "images" in parts:
            path = folder / "images.json"
            body = read_sealed(path, _Images, str(path))
            values |= {name: tuple(numbers) for name, numbers in body.items()}
        return cls(**values)


def classes_of(labels: Iterable[str], order: Callable[[str], Any] | None = None) -> list[str]:
    """Returns the distinct labels of the training split, sorted by the key `order` (None: by
    alphabet); raises `UserError` unless there are at least two.
    """
    classes = sorted({*labels}, key=order)
    if len(classes) < 2:
        only = f" but {classes[0]!r}" if classes else ""
        raise UserError(
            f"config.data: the training split has no label{only}; there is nothing to tell apart"
        )
    return classes


def has_learned(workdir: Path, parts: Sequence[str]) -> bool:
    """Returns whether a run's folder has the saved files of all these parts, such as "vocabularies"
    or "labels"; see `Learned.load`.
    """
    return all(
        has_vocabularies(workdir)
        if part == "vocabularies"
        else (workdir / _FOLDER / f"{part}.json").exists()
        for part in parts
    )


def has_vocabularies(workdir: str | Path) -> bool:
    """Returns whether a run has saved its vocabularies in `workdir`: the shared one, or both."""
    folder = Path(workdir) / _FOLDER
    return (folder / "shared.json").exists() or all(
        (folder / f"{side}.json").exists() for side in SIDES
    )


def load_vocabularies(
    workdir: str | Path, settings: VocabularySettings | None = None
) -> tuple[Vocabulary, Vocabulary]:
    """Loads and returns the (source, target) vocabularies saved in `workdir`, the same object twice
    if they are shared; raises `UserError` if their settings are not the given ones.

    Raises:
      UserError: missing, damaged, or of other settings than `settings`, if those are given.
    """
    folder = Path(workdir) / _FOLDER
    shared = (folder / "shared.json").exists()
    if shared:
        source = target = Vocabulary.load(folder / "shared.json")
    else:
        source, target = (Vocabulary.load(folder / f"{side}.json") for side in SIDES)
    if settings is not None:
        kind = target.settings["kind"]
        saved = {**source.settings, "shared": shared, "target_kind": kind}
        _check_settings(saved, settings, folder)
    return source, target


def inherited_vocabulary(run: Path | None, settings: VocabularySettings) -> Vocabulary | None:
    """Returns a vocabulary that needs no training text: that in the folder of the run `run` if it
    has the same settings, else the tokenizer in the configured file, else None. Of a run whose
    vocabulary has other settings this is logged.

    Raises:
      UserError: a tokenizer that cannot be read.
    """
    if run is not None and has_vocabularies(run):
        vocabulary = load_vocabularies(run)[0]
        if vocabulary.settings == settings.arguments:
            return vocabulary
        flags = " ".join(f"--config.vocabulary.{key}={v}" for key, v in vocabulary.settings.items())
        _log.warning(
            "%s has another vocabulary than config.vocabulary asks for, so its embeddings cannot be"
            " taken; %s would take it",
            run,
            flags,
        )
    return Vocabulary.train((), **settings.arguments) if settings.kind == TOKENIZER else None


def _check_settings(saved: Mapping[str, Any], settings: VocabularySettings, folder: Path) -> None:
    """Raises `UserError`, which lists the differences, unless `saved`, the dict of settings of the
    vocabularies in `folder`, equals what the config asks for (`settings`, a
    `VocabularySettings`).
    """
    expected = {
        **settings.arguments,
        "shared": settings.shared,
        "target_kind": settings.target_arguments["kind"],
    }
    differing = [
        f"{key} is {saved.get(key)!r} there and {expected.get(key)!r} here"
        for key in {**expected, **saved}
        if saved.get(key) != expected.get(key)
    ]
    if differing:
        raise UserError(
            f"{folder} was made with other settings than config.vocabulary: {', '.join(differing)};"
            " take another workdir"
        )


def moments(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns the mean and the standard deviation (1 where it is 0) of each channel of uint8 images
    [N,H,W,C], two tuples of floats, with 255 scaled to 1.
    """
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
