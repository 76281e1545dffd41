"""What sources give of images beside a label: captions, objects with boxes, the class of every pixel;
and the base of the data of runs that read the last two.

Axis letters: N images, H height, W width, C channels, K objects of an image.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from attnlab.data.dataset import Row
from attnlab.data.images.labelled import Pictures
from attnlab.data.learned import Learned
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


class AnnotatedData(Pictures[Row]):
    """Base of the data of runs that learn what is where in an image: a source gives `Boxed` or
    `Segmented`. Not the data of one by itself.

    Attributes:
      ground: classes that stand before those of the source.
    """

    ground: ClassVar[tuple[str, ...]] = ()

    def learn(self, by_split: Mapping[str, Boxed | Segmented]) -> Learned:
        """Returns a `Learned` with the shape, mean and deviation of the training images, and the
        classes, `ground` first. See `Dataset.learn`.
        """
        train = by_split["train"]
        return Learned().with_images(train.images, (*self.ground, *train.classes))

    def check_learned(self, content: Boxed | Segmented, split: str) -> None:
        """Raises `UserError` if the images of a split differ in shape from those of training, or
        its classes in names or order.
        """
        self.learned.check(content.images, self.where(split))
        if (*self.ground, *content.classes) != self.learned.classes:
            raise UserError(
                f"{self.where(split)} has the classes {', '.join(content.classes)},"
                f" training {', '.join(self.learned.classes[len(self.ground) :])}"
            )
