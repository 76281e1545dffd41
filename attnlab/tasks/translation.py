"""Translation: pairs of sentences, scored token by token and, as written freely, by BLEU, chrF and
exact matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attnlab.decoding import corpus_scores
from attnlab.decoding.metrics import sentence_counts
from attnlab.records.items import Items
from attnlab.records.measures import Measure, share
from attnlab.tasks.pairs import PairTask
from attnlab.tasks.protocol import Params, Scores
from attnlab.tasks.tokens import TEACHER_FORCED


class Translation(PairTask):
    """Translation of sentences; see `configs/translation.py`."""

    measures: Mapping[str, Measure | str] = {
        **TEACHER_FORCED,
        **dict.fromkeys(("bleu", "chrf"), Measure("max", low=0.0, high=100.0)),
        "exact": share("sentences"),
    }
    units: ClassVar[Mapping[str, str]] = {
        "loss": "nats per target token",
        "accuracy": "next token, teacher-forced",
        "exact": "share of sentences right as a whole",
    }
    examples = "sentences"
    outputs = "translations.txt"

    def references(self, split: str) -> list[str]:
        """The targets of a split as the vocabulary sees them."""
        return [self.vocabularies[1].normalize(target) for _, target in self.data.pairs[split]]

    def score(self, params: Params, split: str) -> tuple[Scores, list[str]]:
        """Free-running scores of a split, BLEU, chrF (with their signatures) and the share of exact
        matches, and the translations.
        """
        found = self.translate(params, [source for source, _ in self.data.pairs[split]])
        hypotheses, lowercase = [self.text(best[0]) for best in found], self._lowercase
        return corpus_scores(hypotheses, self.references(split), lowercase=lowercase), hypotheses

    def items(self, params: Params, split: str, outputs: Sequence[str]) -> Items:
        """A row for every sentence: its tokens, teacher-forced, and its n-grams."""
        return Items.of(self.counted(params, split, outputs))

    def counted(
        self, params: Params, split: str, outputs: Sequence[str]
    ) -> dict[str, tuple[str, Any]]:
        """Rule and rows of every score, see `attnlab.records.items`."""
        counts = sentence_counts(outputs, self.references(split), lowercase=self._lowercase)
        return {**self.teacher_forced(params, split), **counts}

    @property
    def _lowercase(self) -> bool:
        return bool(self.config.vocabulary.lowercase)
