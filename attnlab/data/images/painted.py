"""Painted images: coloured shapes on a dark ground, exact and seeded, in which everything that is there
is known; and the images of another source, each put anywhere on a larger dark ground.

An object is a shape (circle, square, triangle, star) in one of six colours and two sizes. It lies
anywhere, as a whole within the image. The label is its shape, or its colour and shape. What an image
shows is a `Scene`; `painted` makes the pixels of it.
"""

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from attnlab.config.registry import Part
from attnlab.data import SOURCES, SPLITS
from attnlab.data.generated import Sized, below, source_within, within
from attnlab.data.images.annotated import Labelled
from attnlab.data.images.files import with_channels
from attnlab.data.learned import Shape
from attnlab.errors import UserError

SHAPES = ("circle", "square", "triangle", "star")
COLOURS = {
    "red": (220, 40, 40),
    "green": (40, 180, 60),
    "blue": (50, 80, 220),
    "yellow": (230, 210, 40),
    "purple": (150, 60, 190),
    "cyan": (50, 200, 210),
}
GROUND = 32  # the grey behind the objects
_BYTES = 2**35  # of a split
# of a star, in thousandths
_TIPS = ((0, -1000), (951, -309), (588, 809), (-588, 809), (-951, -309))


Size = Literal["small", "large"]


class Thing(NamedTuple):
    """An object: what it is, and the row and the column of the pixel in its middle."""

    size: Size
    colour: str
    shape: str
    row: int
    column: int


class Scene(NamedTuple):
    """What an image shows."""

    things: tuple[Thing, ...]


def check_size(images: int, side: int, channels: int = 3) -> None:
    """Raises `UserError` if a number of `images` of side x side pixels, with a byte for each
    channel, takes more than 32 GiB.
    """
    if (size := images * side**2 * channels) > _BYTES:
        raise UserError(
            f"config.data: {images:,} images of {side} x {side} x {channels} take"
            f" {size / 2**30:,.0f} GiB; expected at most {_BYTES // 2**30}, take fewer or smaller"
            " ones"
        )


@functools.cache
def stamp(shape: str, radius: int) -> np.ndarray:
    """Returns the mask of a centred circle, square, triangle or star, bool [2r+1,2r+1] for `radius`
    r, computed in integers only.
    """
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    match shape:
        case "circle":
            inside = x * x + y * y <= radius * radius
        case "square":
            inside = np.ones_like(x, bool)
        case "triangle":
            inside = 2 * abs(x) <= y + radius
        case _:  # a star lies inside of four of the five lines through its tips
            reach = 360 * radius + 300  # 309, and a little more, so that small ones have arms
            lines = [right * x + down * y <= reach for right, down in _TIPS]
            inside = np.sum(lines, axis=0) >= 4
    return np.asarray(inside)


@dataclass(frozen=True)
class Painted(Sized):
    """Base of the sources whose images [side,side,3] are painted scenes.

    Attributes:
      side: height and width of an image in pixels.
      small: the radius of small objects in pixels.
      large: the radius of large objects in pixels.
      noise: every number of an image is changed by a whole number up to this, up or down.
      label: what of an object is its class.

    Raises:
      UserError: a number out of range.
    """

    called: ClassVar[str]  # the source in what its random numbers follow from
    limits = {"small": (3,), "noise": (0, 127)}

    side: int = 64
    small: int = 5
    large: int = 9
    noise: int = 16
    label: Literal["shape", "colour_shape"] = "colour_shape"

    def __post_init__(self) -> None:
        """Raises `UserError` for a radius or side out of range or images too many for memory,
        besides the checks of `Sized`.
        """
        super().__post_init__()
        within("large", self.large, self.small, 256)
        within("side", self.side, 2 * self.large + 2, 1024)
        check_size(max(map(self.count, SPLITS)), self.side)

    @property
    def shape(self) -> Shape:
        """H, W, C of every image."""
        return self.side, self.side, 3

    @property
    def labels(self) -> tuple[str, ...]:
        """Returns all possible labels: the shapes, or all pairs of colour and shape."""
        if self.label == "shape":
            return SHAPES
        return tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)

    def scenes(self, split: str) -> list[Scene]:
        """What the images of `split` show."""
        raise NotImplementedError

    def pictures(self, split: str, scenes: Sequence[Scene]) -> np.ndarray:
        """Renders N scenes, the first N of `split`, as images uint8 [N,side,side,3] with pixel
        noise that the seed and the split determine.
        """
        draw = random.Random(f"noise of {self.called} {self.seed} {split}")
        images = np.empty((len(scenes), *self.shape), np.uint8)
        for image, scene in zip(images, scenes, strict=True):
            image[:] = self._noisy(draw, self.painted(scene))
        return images

    def labelled_as(self, thing: Thing) -> str:
        """The label of an object."""
        return thing.shape if self.label == "shape" else f"{thing.colour} {thing.shape}"

    def painted(self, scene: Scene) -> np.ndarray:
        """Renders a scene as an image, uint8 [side,side,3], without noise."""
        image = np.full(self.shape, GROUND, np.uint8)
        for thing in scene.things:
            image[self.mask(thing)] = COLOURS[thing.colour]
        return image

    def mask(self, thing: Thing) -> np.ndarray:
        """Returns the mask of the pixels that an object covers in its image, bool [side,side]."""
        radius, mask = self.radius(thing.size), np.zeros((self.side, self.side), bool)
        rows = slice(thing.row - radius, thing.row + radius + 1)
        columns = slice(thing.column - radius, thing.column + radius + 1)
        mask[rows, columns] = stamp(thing.shape, radius)
        return mask

    def radius(self, size: Size) -> int:
        """Of an object of this size, in pixels."""
        return self.small if size == "small" else self.large

    def _kind(self, draw: random.Random) -> tuple[Size, str, str]:
        """Draws the size, colour and shape of an object, all equally likely."""
        size: Size = "small" if below(draw, 2) else "large"
        colour = tuple(COLOURS)[below(draw, len(COLOURS))]
        return size, colour, SHAPES[below(draw, len(SHAPES))]

    def _noisy(self, draw: random.Random, image: np.ndarray) -> np.ndarray:
        """Returns an image with a random integer in -noise to noise added to every number, clipped
        to 0 to 255; unchanged if `noise` is 0.
        """
        if not self.noise:
            return image
        raw = np.frombuffer(draw.randbytes(image.size), np.uint8).reshape(image.shape)
        noise = raw.astype(np.int16) % (2 * self.noise + 1) - self.noise
        return np.clip(image + noise, 0, 255).astype(np.uint8)


@dataclass(frozen=True)
class Shapes(Painted):
    """Images [side,side,3] of one object each, drawn from all that there can be.

    The split of an image follows from the hash of what it shows (90/5/5), so nothing is shown in
    two splits, whatever the seeds.
    """

    called = "shapes"

    def scenes(self, split: str) -> list[Scene]:
        """Draws the scenes of `split`, one object each, such that no scene is in two splits."""
        draw = random.Random(f"shapes {self.seed} {split}")
        return list(self.apart(split, lambda: Scene((self._draw_thing(draw),)), repr))

    def images(self, split: str) -> Labelled:
        """Draws the images of `split` as `Labelled`, each with the label of its object."""
        scenes = self.scenes(split)
        return Labelled(
            self.pictures(split, scenes), [self.labelled_as(scene.things[0]) for scene in scenes]
        )

    def _draw_thing(self, draw: random.Random) -> Thing:
        """Draws an object of any kind at a random position wholly inside the image."""
        size, colour, shape = self._kind(draw)
        radius = self.radius(size)
        row, column = (radius + below(draw, self.side - 2 * radius) for _ in range(2))
        return Thing(size, colour, shape, row, column)


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
