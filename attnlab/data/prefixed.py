"""The pairs of another source with a text before every source text, by which a model of several
tasks knows what is asked (Raffel et al. 2020, section 2.4): "summarize: ".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnlab.config.registry import Part, made
from attnlab.data import SOURCES
from attnlab.errors import UserError


@dataclass(frozen=True)
class Prefixed:
    """The pairs of `of`, each source behind `prefix`.

    Attributes:
      of: a source of pairs.
      prefix: the text; a blank at its end stands between it and the source.
    """

    of: Part = "json"
    prefix: str = "summarize: "

    parts: ClassVar = {"of": SOURCES}

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """The pairs of `split`; raises `UserError` as `of` does, and where `of` has no pairs."""
        source = made(SOURCES, self.of)()
        if not callable(getattr(source, "pairs", None)):
            raise UserError(
                f"config.data.of: {type(source).__name__} has no pairs(split) whose sources could"
                " get a prefix"
            )
        return [(self.prefix + text, target) for text, target in source.pairs(split)]
