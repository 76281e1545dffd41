"""The images of another source, each at a drawn place of a larger dark one, and perhaps with clutter
around it: pieces of other images (Mnih et al. 2014, section 4.1).
"""

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from attnlab.config.registry import Part
from attnlab.data import SOURCES
from attnlab.data.generated import below, source_within, within
from attnlab.data.images.files import with_channels
from attnlab.data.images.labelled import Labelled
from attnlab.data.images.shapes import check_size
from attnlab.data.learned import Shape
from attnlab.errors import UserError


@dataclass(frozen=True)
class Translated:
    """The images of `of`, each as a whole anywhere in one of side x side pixels that is 0 elsewhere.
    What lies over each other: the larger number of the two is kept.

    Attributes:
      of: a source of labelled images.
      side: height and width of an image in pixels.
      clutter: pieces in each image; each is cut from an image of the same split, drawn anew.
      piece: height and width of a piece in pixels.
      seed: of places and pieces.

    Raises:
      UserError: a number out of range.
    """

    of: Part = "idx"
    side: int = 60
    clutter: int = 0
    piece: int = 8
    seed: int = 0

    parts: ClassVar = {"of": SOURCES}

    def __post_init__(self) -> None:
        """Raises `UserError` for a side, piece, number of pieces or seed out of range."""
        within("side", self.side, 1, 4096)
        within("clutter", self.clutter, 0, 1000)
        within("piece", self.piece, 1, self.side)
        within("seed", self.seed, 0)

    @property
    def shape(self) -> Shape | None:
        """Returns the shape (H, W, C) of every image; None if the other source does not know its
        own before reading.
        """
        inside = getattr(self._source, "shape", None)
        return None if inside is None else (self.side, self.side, inside[2])

    def images(self, split: str) -> Labelled:
        """Returns the images of `split` of the other source as `Labelled`, each at a random place
        of a black image of side x side pixels with `clutter` random pieces of other images; raises
        `UserError` for images larger than `side` or smaller than a piece.

        Raises:
          UserError: as `of` does; images that are larger than `side`, or smaller than a piece.
        """
        labelled = self._source.images(split)
        small = with_channels(labelled.images)
        height, width, channels = small.shape[1:]
        if max(height, width) > self.side:
            raise UserError(
                f"config.data.side={self.side}: the images of config.data.of are {height} x {width}"
            )
        if self.clutter and min(height, width) < self.piece:
            raise UserError(
                f"config.data.piece={self.piece}: the images of config.data.of are {height} x"
                f" {width}"
            )
        check_size(len(small), self.side, channels)
        draw = random.Random(f"translated {self.seed} {split}")
        images = np.zeros((len(small), self.side, self.side, channels), np.uint8)
        for image, inside in zip(images, small, strict=True):
            for _ in range(self.clutter):
                other = small[below(draw, len(small))]
                row, column = (below(draw, side - self.piece + 1) for side in (height, width))
                self._put(draw, image, other[row : row + self.piece, column : column + self.piece])
            self._put(draw, image, inside)
        return Labelled(images, labelled.labels)

    @property
    def _source(self) -> Any:
        purpose = "that could be put anywhere; take shapes, idx, npz or image_folder"
        return source_within(self.of, "images", purpose)

    def _put(self, draw: random.Random, image: np.ndarray, small: np.ndarray) -> None:
        """Copies a small image to a random position in a large one, which is changed; each pixel
        becomes the larger of the two.
        """
        height, width = small.shape[:2]
        row, column = below(draw, self.side - height + 1), below(draw, self.side - width + 1)
        window = image[row : row + height, column : column + width]
        np.maximum(window, small, out=window)
