"""The config node `decoding` for generated sequences: length limits, and what a system must
provide.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from attnlab.config import read
from attnlab.config.decoding import Decoding
from attnlab.config.schema import described
from attnlab.errors import UserError

METHODS = described(Decoding)["method"].choices
TOKENS = 2**28  # the most token places of a batch in decoding: 1 GiB of ids


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Decoding):
    """The settings of `attnlab.config.decoding.Decoding` and what follows from them; make them with
    `validate`.
    """

    def limit(self, source_length: int) -> int:
        """The most target tokens for a source of this many tokens, at least 1."""
        return max(1, math.ceil(self.max_ratio * source_length) + self.max_extra)

    def stopped(self, text: str) -> bool:
        """Whether a text contains a text that ends an answer."""
        return any(one in text for one in self.stop)

    def cut(self, text: str, start: int = 0) -> str:
        """A text up to the first text that ends an answer, searched from `start` on."""
        places = [text.find(one, start) for one in self.stop]
        return text[: min((place for place in places if place >= 0), default=None)]

    @property
    def rows(self) -> int:
        """How many sequences are decoded together."""
        return self.batch * {"beam": self.beam, "sample": self.n_best}.get(self.method, 1)

    def check_room(self, source_length: int) -> None:
        """Raise `UserError` if the sequences that are decoded together, from sources of this
        length, have more than `TOKENS` places.
        """
        places = self.rows * self.limit(source_length)
        if places > TOKENS:
            raise UserError(
                f"decoding: batch={self.batch} texts, {self.rows // self.batch} for each, of up to"
                f" {self.limit(source_length):,} tokens (max_ratio={self.max_ratio},"
                f" max_extra={self.max_extra}) are {places:,} places for tokens; expected at most"
                f" {TOKENS:,}"
            )


def validate(settings: Mapping[str, Any], *, weights: bool = True) -> Settings:
    """The settings of a config node; missing settings have their defaults.

    Args:
      settings: the node `decoding`, a mapping of `Settings` fields.
      weights: whether the step of the system returns attention weights, which the coverage penalty
        needs.

    Raises:
      UserError: unknown field or method (with near names), a value of the wrong type or outside its
        range.
    """
    chosen = read(Settings, settings, "decoding")
    if chosen.method == "beam" and chosen.coverage and not weights:
        raise UserError(
            f"decoding.coverage={chosen.coverage} needs attention weights, which this system does"
            " not give; set decoding.coverage=0"
        )
    return chosen
