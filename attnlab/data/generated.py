"""What generated sources share: how many examples, from which seed; and, those of pairs, gold
alignments.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from attnlab.config.registry import Part, made
from attnlab.data import SOURCES, SPLITS
from attnlab.errors import UserError

Pair = tuple[str, str]
Alignment = frozenset[tuple[int, int]]  # (source position, target position), both counted from 0


@dataclass(frozen=True)
class Sized:
    """Base of the sources that are computed, not read. Equal fields give equal examples, on every
    machine.

    Attributes:
      examples: training examples: pairs, texts.
      valid, test: examples of the other two splits.
      seed: of the generator; apart from the seed of a trial, so that several trials see the same
        data.

    Raises:
      UserError: a size below 1 or a negative seed.
    """

    examples: int = 20_000
    valid: int = 1_000
    test: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        for field, least in (("examples", 1), ("valid", 1), ("test", 1), ("seed", 0)):
            if getattr(self, field) < least:
                raise UserError(
                    f"config.data.{field}={getattr(self, field)} must be {least} or more"
                )

    def count(self, split: str) -> int:
        """The number of examples in `split`."""
        return dict(zip(SPLITS, (self.examples, self.valid, self.test), strict=True))[split]


@dataclass(frozen=True)
class Generated(Sized):
    """Base of the generated sources of pairs."""

    def pairs(self, split: str) -> list[Pair]:
        """The (source, target) texts of `split`."""
        raise NotImplementedError

    def alignment(self, pair: Pair) -> Alignment:
        """Which source positions each target position is made from.

        Raises:
          ValueError: a pair that this source cannot have made.
        """
        raise NotImplementedError


def source_within(of: Part, method: str, purpose: str) -> Any:
    """The source in the field `of` of another; `UserError` unless it has this method."""
    source = made(SOURCES, of)()
    if not callable(getattr(source, method, None)):
        kind = type(source).__name__
        raise UserError(f"config.data.of: {kind} has no {method}(split) {purpose}")
    return source


def within(where: str, value: int, least: int, most: int | None = None) -> None:
    """Refuses a setting out of range.

    Raises:
      UserError: `value` is below `least` or above `most`.
    """
    if value < least or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"in {least} ... {most}"
        raise UserError(f"config.data.{where}={value} must be {limits}")


def split_of(source: str) -> str:
    """The split that a source text belongs to by its own hash: 90 % are for training, 5 % for
    validation, 5 % for the test.
    """
    return {0: "valid", 1: "test"}.get(hashlib.sha256(source.encode()).digest()[0] % 20, "train")
