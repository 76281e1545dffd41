"""Pronunciation: spelled words to phonemes, the translation of a script. What differs from translation is how the answers are scored.

    phoneme error rate = sum of edit distances / sum of reference lengths          word error rate = share of words said wrong

A word that the data gives several pronunciations is answered once, and the nearest of them counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnlab.decoding.metrics import error_rates
from attnlab.tasks.translation import Translation


class Pronunciation(Translation):
    """Pronunciation: pairs of a word and its phonemes with blanks between them, scored by edits; see `configs/g2p.py`."""

    measures: Mapping[str, str] = {
        **{"loss": "min", "perplexity": "min", "accuracy": "max"},
        **{"phoneme_error_rate": "min", "word_error_rate": "min"},
    }
    units: Mapping[str, str] = {
        "loss": "nats per phoneme, ends of words counted",
        "accuracy": "next phoneme, teacher-forced",
        "phoneme_error_rate": "edits / phonemes of the nearest pronunciation",
        "word_error_rate": "share of words said wrong",
    }
    examples = "words"
    outputs = "pronunciations.txt"

    def size(self, split: str) -> int:
        """The number of words; each may have several pronunciations."""
        return len({word for word, _ in self.data.pairs[split]})

    def score(self, params: Any, split: str) -> tuple[dict[str, Any], list[str]]:
        """Error rates of the words of a split, and what was answered for each pair."""
        known: dict[str, list[list[str]]] = {}
        for word, phonemes in self.data.pairs[split]:
            known.setdefault(word, []).append(self.vocabularies[1].normalize(phonemes).split())
        found = [self.text(best[0]) for best in self.translate(params, list(known))]
        answers = dict(zip(known, found, strict=True))
        rates = error_rates([answer.split() for answer in found], list(known.values()))
        scores = {"phoneme_error_rate": rates[0], "word_error_rate": rates[1]}
        return scores, [answers[word] for word, _ in self.data.pairs[split]]
