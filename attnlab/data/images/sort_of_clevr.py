"""Sort-of-CLEVR: generated images of six objects, and questions about one of them or about how it
stands to the others. Exact and seeded; what is asked, and where the answer is to be seen, is known.

    group            kind       question                                              answers
    non-relational   shape      what shape is the red object ?                        circle, square
                     left       is the red object on the left ?                       yes, no
                     top        is the red object in the upper half ?                 yes, no
    relational       closest    what shape is the object closest to the red object ?  circle, square
                     farthest   what shape is the object farthest from ... ?          circle, square
                     count      how many other objects have the shape of ... ?        0 ... 5

Source: A. Santoro et al., "A simple neural network module for relational reasoning", NeurIPS 2017:
images of 75 x 75 pixels on white, an object of each of six colours, each a square or a circle with
probability 1/2, half-size 5, centres at least twice that apart; 9,800 and 200 images with 10
questions of each group. There a question is 11 bits, here it is words; there the count has the
object itself in it, 1 ... 6, here it does not; there questions are drawn one by one, here none is
asked twice of an image; there corners of objects may lie over others, here all of an object is
seen. The object closest to the one asked for is one of the others (a widely copied generator finds
the object itself where all others are far away), and an image in which two objects of different
shapes are equally close, or equally far, is not used.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from attnlab.data import SPLITS
from attnlab.data.generated import Sized, below, within
from attnlab.data.images.painted import check_size, stamp
from attnlab.data.images.texts import Asked, Box, Question
from attnlab.data.learned import Shape
from attnlab.errors import UserError

COLOURS = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "orange": (255, 156, 0),
    "grey": (128, 128, 128),
    "yellow": (255, 255, 0),
}
SHAPES = ("circle", "square")
GROUND = 255
RELATIONAL = "relational"
NON_RELATIONAL = "non-relational"
KINDS: dict[str, tuple[str, str]] = {
    "shape": (NON_RELATIONAL, "what shape is the {} object ?"),
    "left": (NON_RELATIONAL, "is the {} object on the left ?"),
    "top": (NON_RELATIONAL, "is the {} object in the upper half ?"),
    "closest": (RELATIONAL, "what shape is the object closest to the {} object ?"),
    "farthest": (RELATIONAL, "what shape is the object farthest from the {} object ?"),
    "count": (RELATIONAL, "how many other objects have the shape of the {} object ?"),
}
"""What is asked: the group, and the words with a place for a colour."""
_OF_GROUP = len(KINDS) // 2 * len(COLOURS)  # different questions of a group
_TRIES = 100  # places tried for an object before a scene is begun again


class Thing(NamedTuple):
    """An object: what it is, and the row and the column of the pixel in its middle."""

    colour: str
    shape: str
    row: int
    column: int

    def squared(self, other: "Thing") -> int:
        """The square of the distance to another one."""
        return (self.row - other.row) ** 2 + (self.column - other.column) ** 2

    def apart(self, other: "Thing") -> int:
        """How many rows or columns one is from another, whichever are more."""
        return max(abs(self.row - other.row), abs(self.column - other.column))


Scene = tuple[Thing, ...]
"""What an image shows, an object of each colour."""


@dataclass(frozen=True)
class SortOfClevr(Sized):
    """Images [side,side,3] of six objects, each with questions about them (Santoro et al. 2017).
    The split of an image follows from the hash of what it shows (90/5/5), so nothing is shown in
    two splits, whatever the seeds.

    Attributes:
      examples: how many images are made for training.
      valid: how many images are made for validation.
      test: how many images are made for the test split.
      side: height and width of an image in pixels.
      radius: half the size of an object: it is 2 radius + 1 pixels wide and high.
      non_relational, relational: questions of each group about an image; there are 18 different
        ones.

    Raises:
      UserError: a number out of range, or no question.
    """

    examples: int = 9_800
    valid: int = 200
    test: int = 200
    side: int = 75
    radius: int = 5
    non_relational: int = 10
    relational: int = 10

    limits = {"radius": (2, 64), "non_relational": (0, _OF_GROUP), "relational": (0, _OF_GROUP)}

    def __post_init__(self) -> None:
        """Raises `UserError` for a side out of range, no question at all, or images too many for
        memory, besides the checks of `Sized`.
        """
        super().__post_init__()
        within("side", self.side, 10 * self.radius, 1024)
        if not self.non_relational + self.relational:
            raise UserError(
                "config.data.non_relational=0 and config.data.relational=0: nothing is asked;"
                " expected one above 0"
            )
        check_size(max(map(self.count, SPLITS)), self.side)

    @property
    def shape(self) -> Shape:
        """H, W, C of every image."""
        return self.side, self.side, 3

    def visual_questions(self, split: str) -> Asked:
        """Draws the scenes of `split` and questions about each, and returns the questions as
        `Asked`, those about one image in a row, with a function that renders the images.
        """
        draw = random.Random(f"questions of sort of clevr {self.seed} {split}")
        scenes = self.scenes(split)
        questions = [
            self.question(number, scene, colour, kind)
            for number, scene in enumerate(scenes)
            for colour, kind in self._draw_questions(draw)
        ]
        return Asked(questions, lambda: np.stack([self.painted(scene) for scene in scenes]))

    def scenes(self, split: str) -> list[Scene]:
        """Draws the scenes of `split`, six objects each, such that no scene is in two splits."""
        draw = random.Random(f"sort of clevr {self.seed} {split}")
        return list(self.apart(split, lambda: self._draw_scene(draw), repr))

    def question(self, image: int, scene: Scene, colour: str, kind: str) -> Question:
        """Returns the question of this kind about the object of this colour in a scene, with its
        answer and the boxes that show it; `image` is the scene's number.
        """
        group, template = KINDS[kind]
        (thing,) = (candidate for candidate in scene if candidate.colour == colour)
        answer, objects = self._answer(scene, thing, kind)
        boxes = tuple(map(self.box, objects))
        return Question(image, template.format(colour), answer, group, kind, boxes)

    def painted(self, scene: Scene) -> np.ndarray:
        """Renders a scene as an image, uint8 [side,side,3]."""
        image = np.full(self.shape, GROUND, np.uint8)
        for thing in scene:
            top, left, height, width = self.box(thing)
            part = image[top : top + height, left : left + width]
            part[stamp(thing.shape, self.radius)] = COLOURS[thing.colour]
        return image

    def box(self, thing: Thing) -> Box:
        """Returns the box of an object: first row, first column, height and width."""
        size = 2 * self.radius + 1
        return thing.row - self.radius, thing.column - self.radius, size, size

    def _answer(self, scene: Scene, thing: Thing, kind: str) -> tuple[str, Scene]:
        """Returns the answer to a question of this kind about the object `thing` of a scene, and
        the objects that it depends on, `thing` first.
        """
        other_things = tuple(other for other in scene if other is not thing)
        match kind:
            case "shape":
                return thing.shape, (thing,)
            case "left":
                return "yes" if 2 * thing.column < self.side else "no", (thing,)
            case "top":
                return "yes" if 2 * thing.row < self.side else "no", (thing,)
            case "count":
                alike = tuple(other for other in other_things if other.shape == thing.shape)
                return str(len(alike)), (thing, *alike)
        best: Callable[..., Thing] = min if kind == "closest" else max
        extreme = best(other_things, key=thing.squared)
        return extreme.shape, (thing, extreme)

    def _draw_scene(self, draw: random.Random) -> Scene:
        """Draws a scene, a tuple of six objects of different colours at random positions that do
        not overlap; returns () if an object does not fit in or the shape of a closest or farthest
        object is ambiguous.
        """
        things: list[Thing] = []
        for colour in COLOURS:
            shape = SHAPES[below(draw, 2)]
            for _ in range(_TRIES):
                row, column = (
                    self.radius + below(draw, self.side - 2 * self.radius) for _ in range(2)
                )
                thing = Thing(colour, shape, row, column)
                if all(thing.apart(other) > 2 * self.radius for other in things):
                    things.append(thing)
                    break
            else:
                return ()
        return tuple(things) if _is_clear(tuple(things)) else ()

    def _draw_questions(self, draw: random.Random) -> list[tuple[str, str]]:
        """Draws the (colour, kind) of the questions about one image, without repetition, as many of
        each group as configured, the relational ones last.
        """
        questions = []
        for group, number in (
            (NON_RELATIONAL, self.non_relational),
            (RELATIONAL, self.relational),
        ):
            choices = [
                (colour, kind)
                for kind, (kind_group, _) in KINDS.items()
                if kind_group == group
                for colour in COLOURS
            ]
            questions += [choices.pop(below(draw, len(choices))) for _ in range(number)]
        return questions


def _is_clear(scene: Scene) -> bool:
    """Returns whether for each object the closest others all have one shape, and the farthest
    others too.
    """
    for thing in scene:
        distances = [(thing.squared(other), other.shape) for other in scene if other is not thing]
        for end in (min(distances)[0], max(distances)[0]):
            if len({shape for distance, shape in distances if distance == end}) > 1:
                return False
    return True
