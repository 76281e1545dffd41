"""What sources give of images beside a label: captions, objects with boxes, the class of every pixel.

Axis letters: N images, H height, W width, C channels, K objects of an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


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
    """

    images: np.ndarray
    labels: Sequence[Sequence[str]]
    boxes: Sequence[np.ndarray]
    classes: Sequence[str]


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
