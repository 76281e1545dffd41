"""What generated sources share: how many examples, from which seed, drawn so that no two splits have
one in common; and, of pairs, gold alignments.
"""

import hashlib
import random
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from attnlab.config.registry import Part, made
from attnlab.data import SOURCES, SPLITS
from attnlab.errors import UserError

Pair = tuple[str, str]
Alignment = frozenset[tuple[int, int]]  # (source position, target position), both counted from 0
Example = TypeVar("Example")
_TRIES = 1000  # draws for one example of a split, a twentieth of which should do


@dataclass(frozen=True)
class Sized:
    """Base of the sources that are computed, not read. Equal fields give equal examples, on every
    machine. A source of pairs may have `alignment(pair) -> Alignment`: which source positions each
    target position is made from; `ValueError` for a pair that it cannot have made.

    Attributes:
      limits: the least number that a field of a subclass may be, and the most if there is one.
      examples: how many examples (texts, pairs or images) are made for training.
      valid: how many are made for validation.
      test: how many are made for the test split.
      seed: of the generator; apart from the seed of a trial, so that several trials see the same
        data.

    Raises:
      UserError: a size below 1, a negative seed, or a field beyond its limits.
    """

    limits: ClassVar[Mapping[str, tuple[int, ...]]] = {}

    examples: int = 20_000
    valid: int = 1_000
    test: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises `UserError` for a number of examples below 1, a negative seed, or a field out of
        its `limits`.
        """
        shared = {"examples": (1,), "valid": (1,), "test": (1,), "seed": (0,)}
        for field, limits in {**shared, **self.limits}.items():
            within(field, getattr(self, field), *limits)

    def count(self, split: str) -> int:
        """The number of examples in `split`."""
        return dict(zip(SPLITS, (self.examples, self.valid, self.test), strict=True))[split]

    def apart(
        self,
        split: str,
        draw_example: Callable[[], Example],
        text: Callable[[Example], str],
        identity: Callable[[Example], Hashable] | None = None,
        refusal: str = "",
    ) -> Iterator[Example]:
        """Calls `draw_example` and yields the examples that belong to `split` by the hash of their
        text, no two with the same `identity`, up to `count(split)`; raises `UserError` (with the
        message `refusal` if given) if too few are drawn.

        Args:
          split: whose examples.
          draw_example: draws an example; a false one, such as (), counts for nothing.
          text: of an example, decides its split.
          identity: what no two examples have in common; None where they may be alike.
          refusal: the error message, instead of one about texts.

        Raises:
          UserError: hardly any example belongs to the split.
        """
        distinct: set[Hashable] = set()
        count, tries = self.count(split), _TRIES * (self.count(split) + 1)
        for _ in range(tries):
            example = draw_example()
            if not example or split_of(text(example)) != split:
                continue
            key = len(distinct) if identity is None else identity(example)
            if key not in distinct:
                distinct.add(key)
                yield example
            if len(distinct) == count:
                return
        raise UserError(
            refusal
            or f"config.data: {tries:,} draws gave {len(distinct)} texts of the {split} split; {count} are"
            " wanted. There are too few different texts: take longer ones, or more symbols"
        )


def source_within(part: Part, method: str, purpose: str) -> Any:
    """Builds and returns the data source that the field `part` of another source names; raises
    `UserError`, which ends with `purpose`, unless it has the method called `method`.
    """
    source = made(SOURCES, part)()
    if not callable(getattr(source, method, None)):
        kind = type(source).__name__
        raise UserError(f"config.data.of: {kind} has no {method}(split) {purpose}")
    return source


def within(setting: str, value: int, smallest: int, largest: int | None = None) -> None:
    """Raises `UserError` if the setting `setting` has a value below `smallest` or above `largest`.

    Raises:
      UserError: `value` is below `smallest` or above `largest`.
    """
    if value < smallest or (largest is not None and value > largest):
        limits = f"at least {smallest}" if largest is None else f"in {smallest} ... {largest}"
        raise UserError(f"config.data.{setting}={value} must be {limits}")


def check_even(setting: str, value: int, smallest: int) -> None:
    """Raises `UserError` unless the setting `setting` has an even value of at least `smallest`."""
    within(setting, value, smallest)
    if value % 2:
        raise UserError(f"config.data.{setting}={value} must be even: each key has a value")


def check_lengths(least: int, shortest: int, longest: int) -> None:
    """Raises `UserError` unless `least` <= `shortest` <= `longest`, where the last two are the values
    of the settings of these names.
    """
    if not least <= shortest <= longest:
        limits = f"config.data.shortest={shortest} and config.data.longest={longest}"
        raise UserError(f"{limits}: expected {least} <= shortest <= longest")


def below(draw: random.Random, limit: int) -> int:
    """A uniform draw from 0 ... limit - 1, the same on every version of Python."""
    return int(draw.random() * limit)


def split_of(source: str) -> str:
    """Returns the split that a text belongs to by its hash: "train" for 90 %, "valid" and "test"
    for 5 % each.
    """
    return {0: "valid", 1: "test"}.get(hashlib.sha256(source.encode()).digest()[0] % 20, "train")
