"""The config node `decoding` where sequences are made: how many tokens there may be, and what a
system must give.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from attnlab.config import read
from attnlab.config.nodes import Decoding
from attnlab.config.schema import described
from attnlab.errors import UserError

METHODS = described(Decoding)["method"].choices
TOKENS = 2**28  # places for tokens that a batch may have in decoding: 1 GiB of ids


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(Decoding):
    """The settings of `attnlab.config.nodes.Decoding` and what follows from them; make them with
    `validate`.
    """

    def limit(self, source_length: int) -> int:
        """The most target tokens for a source of this many tokens, at least 1."""
        return max(1, math.ceil(self.max_ratio * source_length) + self.max_extra)

    def stopped(self, text: str) -> bool:
        """Whether a text holds one of those that end an answer."""
        return any(one in text for one in self.stop)

    def cut(self, text: str, start: int = 0) -> str:
        """A text up to the first of those that end an answer, which are looked for from `start`
        on.
        """
        places = [text.find(one, start) for one in self.stop]
        return text[: min((place for place in places if place >= 0), default=None)]

    @property
    def rows(self) -> int:
        """How many sequences grow at once."""
        return self.batch * {"beam": self.beam, "sample": self.n_best}.get(self.method, 1)

    def check_room(self, source_length: int) -> None:
        """Raise `UserError` where the sequences that grow at once, from sources of this length,
        have more than `TOKENS` places.
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
    """The settings of a config node; what it leaves out has its default.

    Args:
      settings: the node `decoding`, a mapping of `Settings` fields.
      weights: whether the system's step gives attention weights, which the coverage penalty needs.

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
