"""The interfaces of systems that read images: classifiers of images and of pixels, detectors, and what
answers questions about images. What writes a text for an image is in `captioner`.

Axis letters: B batch, H height, W width, C' channels, C classes, S length of a question, L layers, N
queries.
"""

from __future__ import annotations

from typing import NamedTuple

import flax.linen as nn
import jax

from attnlab.systems.protocol import System


class OfImage(System):
    """Base of the systems that make logits of an image alone, for C classes.

    Attributes:
      classes: C.
    """

    classes: int

    map_sides = ("image", "image")

    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> jax.Array:
        """Images [B,H,W,C'], normalised, to logits [B,C], or [B,H,W,C] of pixels.

        Args:
          images: float, the channels last.
          valid: [B] bool, which rows are images and not padding; None for all.

        Raises:
          UserError: images too small for what the system does with them.
        """
        raise NotImplementedError


class ImageClassifier(OfImage):
    """Base of the systems that classify an image into C classes.

    Attributes:
      classes: C.
    """


class PixelClassifier(OfImage):
    """Base of the systems that give every pixel of an image one of C classes.

    Attributes:
      classes: C, the ground counted.
    """

    @property
    def looks(self) -> bool:
        """See `System.looks`; the classes of its pixels are drawn."""
        return True


class Detected(NamedTuple):
    """What a detector says of images, layer by layer.

    Attributes:
      logits: [L,B,N,C+1] of classes, the last for no object.
      boxes: [L,B,N,4]: row and column of the middle, height and width, as shares of the image.
    """

    logits: jax.Array
    boxes: jax.Array


class Detector(System):
    """Base of the systems that find the objects of an image, as N answers of a class and a box.

    Attributes:
      classes: C.
      queries: N.
    """

    classes: int
    queries: int

    def __call__(self, images: jax.Array, valid: jax.Array | None = None) -> Detected:
        """Images [B,H,W,C'], normalised, to the answers of all L layers that give some; the last
        ones count.

        Args:
          images: float, the channels last.
          valid: [B] bool, which rows are images and not padding; None for all.

        Raises:
          UserError: images too small for what the system does with them.
        """
        raise NotImplementedError


class VisualAnswerer(System):
    """Base of the systems that answer a question about an image with one of C answers.

    Attributes:
      vocabulary: number of ids of questions.
      classes: C.
    """

    vocabulary: int
    classes: int

    map_sides = ("hops", "image")
    """A question as a whole looks at the "image", whose places lie row by row as `grid` says. What
    looks word by word calls the words "question"."""

    @nn.nowrap
    def grid(self, shape: tuple[int, int, int]) -> tuple[int, int]:
        """h and w, the rows and columns of places that an image H, W, C' has.

        Raises:
          UserError: images too small for what the system does with them.
        """
        raise NotImplementedError

    def __call__(self, images: jax.Array, questions: jax.Array) -> jax.Array:
        """Images [B/Q,H,W,C'], normalised, and questions [B,S], Q about each image one after the
        other, to logits [B,C]; a row whose question is nothing but padding is no example.

        Raises:
          UserError: images too small for what the system does with them.
        """
        raise NotImplementedError
