"""Running text as ids: columns "ids", EOS at the end of each text, and where the source tells it
"recalled", 1 for every id that the ids before it determine and 0 for the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from attnlab.config.registry import build
from attnlab.data import SOURCES
from attnlab.data.columns import Examples, Packed
from attnlab.data.dataset import Dataset, Split, fingerprint_of_texts
from attnlab.data.learned import Learned, VocabularySettings, inherited_vocabulary
from attnlab.errors import UserError


@dataclass(frozen=True)
class Texts(Dataset[str]):
    """The data of a run of language modelling."""

    method = "texts"
    things: ClassVar[str] = "texts"

    # characters of a split, counted once
    _spelt: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of_config(cls, data: Mapping[str, Any]) -> Any:
        """See `Dataset.of_config`."""
        source = build(SOURCES, data, "config.data")()
        if not (any(callable(getattr(source, method, None)) for method in ("loaded", "texts"))):
            raise UserError(
                f"config.data={data['name']}: language modelling needs a source with texts(split),"
                " such as text, shards, associations or tfds; one_side makes one of a source of pairs"
            )
        return source

    @classmethod
    def loaded_by(
        cls,
        source: Any,
        settings: VocabularySettings,
        workdir: str | Path | None,
        splits: Sequence[str],
    ) -> Self | None:
        """See `Dataset.loaded_by`: sources whose texts are ids already."""
        if not callable(getattr(source, "loaded", None)):
            return None
        if workdir is not None and cls.saved(Path(workdir)):
            taken = Learned.load(Path(workdir), cls.parts).source
        else:  # a model's tokenizer, which the texts must have
            taken = inherited_vocabulary(None, settings)
        loaded: Self = source.loaded(settings, taken, splits)
        return loaded

    def texts_of(self, train: Sequence[str]) -> Sequence[str]:
        """See `Dataset.texts_of`."""
        return train

    def encoded(self, given: Sequence[str], split: str) -> Split:
        """See `Dataset.encoded`."""
        columns = {"ids": self.vocabulary.packed(given)}
        if hasattr(self.source, "recalled"):
            columns["recalled"] = self._recalled(given, columns["ids"])
        fingerprint = fingerprint_of_texts((text, "") for text in given)
        return Split(given, Examples(**columns), fingerprint)

    def _recalled(self, texts: Sequence[str], ids: Packed) -> Packed:
        """What `source.recalled` says of the words of each text, by ids."""
        marks = Packed(np.asarray([*self.source.recalled(text), False], np.int32) for text in texts)
        if not np.array_equal(marks.lengths, ids.lengths):
            raise UserError(
                f"config.data={self.name} tells word by word what can be recalled: set"
                " config.vocabulary.kind=word"
            )
        return marks

    @property
    def ids(self) -> dict[str, Packed]:
        """The ids of each split."""
        return {split: examples.packed("ids") for split, examples in self.examples.items()}

    @property
    def recalled(self) -> dict[str, Packed]:
        """What can be recalled of each split, if the source tells it."""
        return {
            split: examples.packed("recalled")
            for split, examples in self.examples.items()
            if "recalled" in examples.columns
        }

    def counts(self, split: str) -> dict[str, int]:
        """Texts, tokens (every EOS is one), unknown ones, and characters as the vocabulary sees
        them (every end of a text is one).
        """
        ids = self.ids[split].ids
        if split not in self._spelt:
            self._spelt[split] = int(self.characters(split).sum())
        return {
            "texts": len(self.rows[split]),
            "tokens": len(ids),
            "unknown": self.vocabulary.special.unknown(ids),
            "characters": self._spelt[split],
        }

    def characters(self, split: str) -> np.ndarray:
        """The characters of each text [N] as the vocabulary sees them, its end one of them."""
        if self.vocabulary.settings["kind"] == "char":
            return self.ids[split].lengths
        return np.array(
            [len(self.vocabulary.normalize(text)) + 1 for text in self.rows[split]], np.int64
        )

    def spelt(self, split: str) -> bool:
        """Whether every character of a split is in its ids, none of which is unknown."""
        return not self.vocabulary.special.unknown(self.ids[split].ids)

    def about(self, split: str) -> str:
        """The size of a split in words."""
        counts = self.counts(split)
        return (
            f"{counts['texts']:,} texts, {counts['tokens']:,} tokens"
            f" ({counts['unknown'] / counts['tokens']:.1%} unknown)"
        )
