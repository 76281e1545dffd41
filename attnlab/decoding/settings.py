"""The config node `decoding`: how target sequences are searched for or drawn."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from typing import Any

from attnlab.config.registry import check_type
from attnlab.errors import UserError, nearest

METHODS = ("beam", "greedy", "sample")
TOKENS = 2**28  # places for tokens that a batch may have in decoding: 1 GiB of ids


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything the config node `decoding` can say; make one with `validate`.

    Attributes:
      method: "beam", "greedy" or "sample".
      batch: sentences decoded at once.
      n_best: hypotheses wanted for each sentence (beam; fewer where fewer end within the limit), or
        samples (sample).
      beam, length_penalty, coverage: of beam search: its width, alpha and beta of GNMT's penalties.
      temperature, top_k, top_p, seed: of sampling.
      max_ratio, max_extra: at most ceil(max_ratio * source length) + max_extra tokens are emitted,
        both EOS counted.
    """

    method: str = "beam"
    batch: int = 64
    n_best: int = 1
    beam: int = 5
    length_penalty: float = 0.6
    coverage: float = 0.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    max_ratio: float = 2.0
    max_extra: int = 10

    def limit(self, source_length: int) -> int:
        """The most target tokens for a source of this many tokens, at least 1."""
        return max(1, math.ceil(self.max_ratio * source_length) + self.max_extra)

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
    hints = typing.get_type_hints(Settings)
    for field, value in settings.items():
        if field not in hints:
            raise UserError(f"decoding has no field {field!r}; {nearest(field, hints)}")
        check_type(value, hints[field], f"decoding.{field}")
    chosen = Settings(**dict(settings))
    if chosen.method not in METHODS:
        raise UserError(
            f"unknown decoding.method {chosen.method!r}; {nearest(chosen.method, METHODS)}"
        )
    _check_ranges(chosen)
    if chosen.method == "beam" and chosen.n_best > chosen.beam:
        raise UserError(
            f"decoding.n_best={chosen.n_best} is more than decoding.beam={chosen.beam}; raise the"
            " beam or lower n_best"
        )
    if chosen.method == "greedy" and chosen.n_best > 1:
        raise UserError(
            f"decoding.n_best={chosen.n_best}: greedy search finds one hypothesis; set n_best=1 or"
            " method 'beam' or 'sample'"
        )
    if chosen.method == "beam" and chosen.coverage and not weights:
        raise UserError(
            f"decoding.coverage={chosen.coverage} needs attention weights, which this system does"
            " not give; set decoding.coverage=0"
        )
    return chosen


def _check_ranges(chosen: Settings) -> None:
    """Raise UserError for the first number outside its range; the last bound is inclusive
    everywhere.
    """
    for field, least, most in (
        ("batch", 1, 2**16),
        ("n_best", 1, 2**12),
        ("beam", 1, 2**12),
        ("length_penalty", 0, 100),
        ("coverage", 0, 10**6),
        ("temperature", 0, 10**6),
        ("top_k", 0, 2**31 - 1),
        ("max_ratio", 0, 10**4),
        ("max_extra", 0, 2**20),
        ("seed", 0, 2**32 - 1),
    ):
        value = getattr(chosen, field)
        if not least <= value <= most:
            within = f"at least {least}" if value < least else f"in {least} ... {most}"
            raise UserError(f"decoding.{field}={value!r} must be a finite number {within}")
    if not 0 < chosen.top_p <= 1:
        raise UserError(
            f"decoding.top_p={chosen.top_p!r} must lie above 0 and at most 1; 1 switches it off"
        )
