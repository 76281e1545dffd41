"""The pairs of another source with a text before every source text, by which a model of several
tasks knows what is asked (Raffel et al. 2020, section 2.4): "summarize: ".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnlab.config.registry import Part
from attnlab.data import SOURCES
from attnlab.data.generated import source_within


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
        source = source_within(self.of, "pairs", "whose sources could get a prefix")
        return [(self.prefix + text, target) for text, target in source.pairs(split)]
