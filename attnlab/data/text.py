"""Running text as ids: columns "ids", EOS at the end of each text, and where the source tells it
"recalled", 1 for every id that the ids before it determine and 0 for the others.
"""

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
        """Builds the data source that a config node names; raises `UserError` unless it has a
        method `texts` or `loaded`. See `Dataset.of_config`.
        """
        source = build(SOURCES, data, "config.data")()
        if not (any(callable(getattr(source, method, None)) for method in ("loaded", "texts"))):
            raise UserError(
                f"config.data={data['name']}: language modelling needs a source with texts(split),"
                " such as text, rows, shards or tfds; one_side makes one of a source of pairs"
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
        """Reads the splits of a source that stores ids already (it has a method `loaded`) as
        `Texts`, by the vocabulary saved in `workdir`, else the tokenizer of the settings, if they
        name one, else the source's own; returns None for any other source.
        """
        if not callable(getattr(source, "loaded", None)):
            return None
        if workdir is not None and cls.saved(Path(workdir)):
            vocabulary = Learned.load(Path(workdir), cls.parts).source
        else:  # a model's tokenizer, which the texts must have
            vocabulary = inherited_vocabulary(None, settings)
        loaded: Self = source.loaded(settings, vocabulary, splits)
        return loaded

    def texts_of(self, train: Sequence[str]) -> Sequence[str]:
        """See `Dataset.texts_of`."""
        return train

    def encoded(self, rows: Sequence[str], split: str) -> Split:
        """Encodes texts as a `Split` with the column "ids", EOS at the end of each, and, if the
        source has `recalled`, the column "recalled" (1 at ids that earlier ones determine). See
        `Dataset.encoded`.
        """
        columns = {"ids": self.vocabulary.packed(rows)}
        if hasattr(self.source, "recalled"):
            columns["recalled"] = self._recalled(rows, columns["ids"])
        fingerprint = fingerprint_of_texts((text, "") for text in rows)
        return Split(rows, Examples(**columns), fingerprint)

    def _recalled(self, texts: Sequence[str], ids: Packed) -> Packed:
        """Returns a `Packed` beside the ids of the texts, with 1 at each word that earlier words
        determine by `source.recalled`, else 0 (also at EOS); raises `UserError` unless each word is
        one id.
        """
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
        """Returns as a dict the column "recalled" of each split that has it, by the name of the
        split.
        """
        return {
            split: examples.packed("recalled")
            for split, examples in self.examples.items()
            if "recalled" in examples.columns
        }

    def counts(self, split: str) -> dict[str, int]:
        """Returns as a dict the numbers of texts, tokens (EOS included), unknown tokens and
        characters (normalized, and 1 more per text for its end) of a split.
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
        """Returns the number of characters of each normalized text of a split, [N], its end counted
        as one.
        """
        if self.vocabulary.settings["kind"] == "char":
            return self.ids[split].lengths
        return np.array(
            [len(self.vocabulary.normalize(text)) + 1 for text in self.rows[split]], np.int64
        )

    def spelt(self, split: str) -> bool:
        """Whether every character of a split is in its ids, none of which is unknown."""
        return not self.vocabulary.special.unknown(self.ids[split].ids)

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the numbers of texts and tokens, and the share of
        unknown tokens.
        """
        counts = self.counts(split)
        return (
            f"{counts['texts']:,} texts, {counts['tokens']:,} tokens"
            f" ({counts['unknown'] / counts['tokens']:.1%} unknown)"
        )
