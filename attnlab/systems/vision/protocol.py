"""The interfaces of systems that read images: classifiers of images and of pixels, detectors, and what
answers questions about images. What writes a text for an image is in `captioner`.

Axis letters: B batch, H height, W width, C' channels, C classes, S length of a question, L layers, N
queries.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from attnlab.config.registry import made
from attnlab.layers.backbones import BACKBONES
from attnlab.layers.backbones.protocol import Backbone
from attnlab.systems.protocol import System


class OnBackbone(System):
    """Mixin of the systems with a field `backbone`: what follows from its settings alone. Named
    before the class of the kind of system.
    """

    @property
    def detached_backbone(self) -> Backbone:
        """The backbone as a module of its own, without the parameters that it has in the system."""
        backbone: Backbone = made(BACKBONES, self.backbone)(parent=None)  # type: ignore[attr-defined]
        return backbone

    @property
    def over_batch(self) -> bool:
        """See `System.over_batch`."""
        return self.detached_backbone.over_batch or super().over_batch

    @property
    def looks(self) -> bool:
        """See `System.looks`."""
        return super().looks or self.detached_backbone.looks

    @nn.nowrap
    def grid(self, shape: tuple[int, int, int]) -> tuple[int, int]:
        """Returns h and w, the rows and columns of the feature map of an image H, W, C', from
        shapes alone; nothing is computed.
        """
        images = jax.ShapeDtypeStruct((1, *shape), jnp.float32)
        make = self.detached_backbone.init_with_output
        features, _ = jax.eval_shape(make, jax.random.key(0), images)
        return int(features.shape[1]), int(features.shape[2])


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
