"""Scenes of several coloured shapes: generated images, exact and seeded, with captions, boxes and
masks.

Every object lies in a cell of a grid of its own, near its middle, and none touches another. The
caption names them in reading order (by the row of the cell, then by its column):

    a small red circle and a large blue star

or, of two objects and where it is asked for, how the first lies to the second:

    a small red circle left of a large blue star

by the axis on which they lie further apart; by the rows, if it is the same on both.
"""

import random
from dataclasses import dataclass
from typing import Literal

import numpy as np

from attnlab.data.generated import below, within
from attnlab.data.images.annotated import Boxed, Captioned, Segmented, Shown
from attnlab.data.images.painted import COLOURS, SHAPES, Painted, Scene, Size, Thing
from attnlab.errors import UserError, nearest

_TRIES = 1000  # draws of the places of a scene

Kind = tuple[Size, str, str]
"""Size, colour and shape of an object."""


@dataclass(frozen=True)
class Scenes(Painted):
    """Images [side,side,3] of `fewest` to `most` objects, all numbers and all kinds as likely.

    The split of an image follows from the hash of what it shows, places included (90/5/5), so
    nothing is shown in two splits, whatever the seeds. Captions do occur in several.

    Attributes:
      label: what classes of objects and pixels are made of.
      fewest: how few objects an image may have.
      most: how many objects an image may have.
      grid: how many cells there are in a row, and rows of cells.
      jitter: an object lies at most so many pixels from the middle of its cell, on either axis;
        nearer where it would not be whole in the image.
      relations: whether the caption of two objects says how they lie to each other.
      held_out: colours with shapes ("red star") that no scene of training or validation has; every
        scene of the test has one. Empty for none.

    Raises:
      UserError: a number out of range, objects too large for their cells, or a pair that is no
        colour with a shape.
    """

    called = "scenes"

    label: Literal["shape", "colour_shape"] = "shape"
    fewest: int = 1
    most: int = 4
    grid: int = 4
    jitter: int = 3
    relations: bool = False
    held_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raises `UserError` for a setting out of range, objects too large for the grid, or an
        unknown or complete set of `held_out` pairs, besides the checks of `Painted`.
        """
        super().__post_init__()
        within("grid", self.grid, 1, 16)
        within("most", self.most, 1, self.grid**2)
        within("fewest", self.fewest, 1, self.most)
        within("jitter", self.jitter, 0, max((self.side // self.grid - 1) // 2, 0))
        ends = (self._near(cell, self.large) for cell in (0, self.grid - 1))
        if not all(ends):
            raise UserError(
                f"config.data.large={self.large}: such objects are not whole in the outer cells of"
                f" {self.side} pixels by grid={self.grid}, at most jitter={self.jitter} from their"
                " middles; take smaller ones, fewer cells or more pixels"
            )
        pairs = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
        for pair in self.held_out:
            if pair not in pairs:
                raise UserError(f"config.data.held_out: no pair {pair!r}; {nearest(pair, pairs)}")
        if set(self.held_out) == set(pairs):
            raise UserError("config.data.held_out has every pair; training needs one")

    def scenes(self, split: str) -> list[Scene]:
        """Draws the scenes of `split`, whose objects are in reading order, such that no scene is in
        two splits.

        Raises:
          UserError: the objects do not find room beside each other, or there are too few different
            scenes to keep the splits apart.
        """
        draw = random.Random(f"{self.called} {self.seed} {split}")
        refusal = (
            f"config.data: there are too few different scenes for the {split} split; take more"
            " objects, cells or jitter"
        )
        return list(self.apart(split, lambda: self._draw_scene(draw, split), repr, refusal=refusal))

    def captions(self, split: str) -> Captioned:
        """Draws the images of `split` and returns them as `Captioned`, each with its caption, the
        object that each word of it is about, and the pixels of each object.
        """
        scenes = self.scenes(split)
        captions = [self.caption(scene) for scene in scenes]
        objects = np.zeros((len(scenes), self.side, self.side), np.uint8)
        for image, scene in zip(objects, scenes, strict=True):
            for number, thing in enumerate(scene.things, 1):
                image[self.mask(thing)] = number
        return Captioned(
            self.pictures(split, scenes),
            [" ".join(word for word, _ in words) for words in captions],
            Shown([[about for _, about in words] for words in captions], objects, NAMED),
        )

    def objects(self, split: str) -> Boxed:
        """Draws the images of `split` as `Boxed`, each with the labels and the boxes (pixels) of
        all its objects, and the names of all classes.
        """
        scenes = self.scenes(split)
        return Boxed(
            self.pictures(split, scenes),
            [[self.labelled_as(thing) for thing in scene.things] for scene in scenes],
            [np.array([self.box(thing) for thing in scene.things], np.int32) for scene in scenes],
            self.labels,
        )

    def masks(self, split: str) -> Segmented:
        """Draws the images of `split` as `Segmented`, each with a mask that has the class number of
        every pixel, 0 for the ground, and the names of the classes.
        """
        scenes = self.scenes(split)
        numbers = {label: number for number, label in enumerate(self.labels, 1)}
        masks = np.zeros((len(scenes), self.side, self.side), np.int32)
        for image, scene in zip(masks, scenes, strict=True):
            for thing in scene.things:
                image[self.mask(thing)] = numbers[self.labelled_as(thing)]
        return Segmented(self.pictures(split, scenes), masks, self.labels)

    def caption(self, scene: Scene) -> list[tuple[str, int]]:
        """Returns the caption of a scene as a list of (word, number of the object that it describes,
        or -1 for words between objects).
        """
        things = scene.things
        separator = ["and"]
        if self.relations and len(things) == 2:
            separator = relation(*things).split()
        words: list[tuple[str, int]] = []
        for number, thing in enumerate(things):
            words += [(word, -1) for word in separator if number]
            words += [(word, number) for word in ("a", thing.size, thing.colour, thing.shape)]
        return words

    def box(self, thing: Thing) -> tuple[int, int, int, int]:
        """Returns the box of an object's pixels: first row, first column, height and width."""
        rows, columns = np.nonzero(self.mask(thing))
        row, column = int(rows.min()), int(columns.min())
        return row, column, int(rows.max()) - row + 1, int(columns.max()) - column + 1

    def _draw_scene(self, draw: random.Random, split: str) -> Scene:
        """Draws a scene of random objects that do not touch, in random grid cells; an object of a
        "test" scene has a held-out pair of colour and shape, if there are any; raises `UserError`
        after 1000 failed placements.
        """
        count = self.fewest + below(draw, self.most - self.fewest + 1)
        kinds = [self._draw_kind(draw) for _ in range(count)]
        if self.held_out and split == "test":
            chosen = below(draw, count)
            colour, shape = self.held_out[below(draw, len(self.held_out))].split()
            kinds[chosen] = (kinds[chosen][0], colour, shape)
        for _ in range(_TRIES):
            order = sorted(range(self.grid**2), key=lambda _: draw.random())
            cells = sorted(order[:count])
            things = tuple(self._draw_thing(draw, *pair) for pair in zip(kinds, cells, strict=True))
            if self._apart(things):
                return Scene(things)
        raise UserError(
            f"config.data: {count} objects of these sizes find no room in {self.side} x {self.side}"
            " pixels; take fewer or smaller ones, or more pixels"
        )

    def _draw_kind(self, draw: random.Random) -> Kind:
        """Draws the size, colour and shape of an object whose colour and shape are not held out."""
        while True:
            kind = self._kind(draw)
            if f"{kind[1]} {kind[2]}" not in self.held_out:
                return kind

    def _draw_thing(self, draw: random.Random, kind: Kind, cell: int) -> Thing:
        """Draws an object of a kind (size, colour, shape) at a random allowed position in the
        grid's cell of this number.
        """
        places = [self._near(index, self.radius(kind[0])) for index in divmod(cell, self.grid)]
        row, column = (place[below(draw, len(place))] for place in places)
        return Thing(*kind, row, column)

    def _near(self, cell: int, radius: int) -> range:
        """Returns the rows (or columns) where the centre of an object of this radius may be in the
        row (or column) of cells with number `cell`: within `jitter` of its middle and wholly inside
        the image.
        """
        middle = (2 * cell + 1) * self.side // (2 * self.grid)
        first = max(middle - self.jitter, radius)
        return range(first, min(middle + self.jitter, self.side - 1 - radius) + 1)

    def _apart(self, things: tuple[Thing, ...]) -> bool:
        """Returns whether there is at least one pixel between the bounding squares of any two of
        the objects.
        """
        return all(
            max(abs(thing.row - other.row), abs(thing.column - other.column))
            > self.radius(thing.size) + self.radius(other.size) + 1
            for number, thing in enumerate(things)
            for other in things[:number]
        )


NAMED = frozenset((*COLOURS, *SHAPES))
"""The words by which localisation is judged."""


def relation(thing: Thing, other: Thing) -> str:
    """Returns how `thing` lies to `other`, "left of", "right of", "above" or "below", by the axis
    on which they are further apart; by the rows, if it is the same on both.
    """
    down, right = other.row - thing.row, other.column - thing.column
    if abs(right) > abs(down):
        return "left of" if right > 0 else "right of"
    return "above" if down > 0 else "below"
