"""What sources give of images beside a label: captions, objects with boxes, the class of every pixel;
and the base of the data of runs that read the last two.

Axis letters: N images, H height, W width, C channels, K objects of an image.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from attnlab.data import read_splits
from attnlab.data.columns import Examples
from attnlab.data.images.labelled import Learned, Pictures, check_images, fingerprint, moments
from attnlab.errors import UserError


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


Given = TypeVar("Given", bound=Boxed | Segmented)


@dataclasses.dataclass(frozen=True)
class AnnotatedData(Pictures, Generic[Given]):
    """Base of the data of runs that learn what is where in an image. Not the data of one by itself.

    Attributes:
      ground: classes that stand before those of the source.
      judged: split to what scores need of each image beside the columns, if anything.
    """

    ground: ClassVar[tuple[str, ...]] = ()
    judged: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)

    @classmethod
    def load(
        cls,
        data: Mapping[str, Any],
        workdir: Path | None = None,
        splits: Sequence[str] = ("train", "valid"),
    ) -> Self:
        """Read the splits of a source. Classes, mean and deviation of the images come from
        `<workdir>/vocabulary/` if they are there. Else they are learned, on the training split and
        nothing else; `save` keeps them.

        Raises:
          UserError: bad config, unreadable data, what `checked` refuses, other classes or sizes
            than those of training, or what was saved is damaged.
        """
        of, where = cls.source(data), f"config.data={data['name']}"
        folder = workdir if workdir is not None and cls.saved(workdir) else None
        parts: dict[str, Given] = read_splits(getattr(of, cls.asks), splits, learn=folder is None)
        for split, part in parts.items():
            check_images(part.images, f"{where}: the {split} split")
            cls.checked(part, f"{where}: the {split} split")
        if folder is not None:
            learned = Learned.load(folder)
        else:
            images, classes = parts["train"].images, parts["train"].classes
            learned = Learned((*cls.ground, *classes), images.shape[1:], *moments(images))
        for split, part in parts.items():
            learned.check(part.images, f"{where}: the {split} split")
            if (*cls.ground, *part.classes) != learned.classes:
                raise UserError(
                    f"{where}: the {split} split has the classes {', '.join(part.classes)},"
                    f" training {', '.join(learned.classes[len(cls.ground) :])}"
                )
        chosen = {split: parts[split] for split in splits}
        return cls(
            {split: cls.encoded(part) for split, part in chosen.items()},
            learned,
            {split: fingerprint(part.images, [cls.digest(part)]) for split, part in chosen.items()},
            {split: cls.judging(part) for split, part in chosen.items()},
        )

    @classmethod
    def checked(cls, given: Given, where: str) -> None:
        """`UserError` unless what a source gave is as agreed; its images are."""
        raise NotImplementedError

    @classmethod
    def encoded(cls, given: Given) -> Examples:
        """The columns of a split."""
        raise NotImplementedError

    @classmethod
    def judging(cls, given: Given) -> Sequence[Any]:
        """What `judged` has of a split."""
        return ()

    @classmethod
    def digest(cls, given: Given) -> str:
        """What is told of the images, for their fingerprint."""
        raise NotImplementedError
