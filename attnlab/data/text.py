"""From config to encoded texts: source, vocabulary, ids, what of them can be recalled, and a
fingerprint of what was read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from attnlab.config.registry import build
from attnlab.config.schema import Node
from attnlab.data import SOURCES, read_splits
from attnlab.data.columns import Packed
from attnlab.data.corpus import (
    OfRows,
    VocabularySettings,
    fingerprint,
    has_vocabularies,
    inherited_vocabulary,
    load_vocabularies,
    saved_or_inherited,
)
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError


@dataclass(frozen=True)
class Texts(OfRows):
    """The data of a run.

    Attributes:
      texts: split to its texts as read.
      ids: split to the same texts as ids, EOS at the end of each.
      vocabulary: of all of them.
      recalled: split to a 1 for every id that the ids before it determine, 0 for the others; empty
        where the source does not tell.
      fingerprints: split to a hash of its texts, for the manifest.
    """

    things: ClassVar[str] = "texts"

    texts: Mapping[str, Sequence[str]]
    ids: Mapping[str, Packed]
    vocabulary: Vocabulary
    recalled: Mapping[str, Packed] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    _spelt: dict[str, int] = field(
        default_factory=dict, repr=False, compare=False
    )  # characters of a split, counted once

    def counts(self, split: str) -> dict[str, int]:
        """Texts, tokens (every EOS is one), unknown ones, and characters as the vocabulary sees
        them (every end of a text is one).
        """
        ids = self.ids[split].ids
        if split not in self._spelt:
            self._spelt[split] = int(self.characters(split).sum())
        return {
            "texts": len(self.texts[split]),
            "tokens": len(ids),
            "unknown": self.vocabulary.special.unknown(ids),
            "characters": self._spelt[split],
        }

    def characters(self, split: str) -> np.ndarray:
        """The characters of each text [N] as the vocabulary sees them, its end one of them."""
        if self.vocabulary.settings["kind"] == "char":
            return self.ids[split].lengths
        return np.array(
            [len(self.vocabulary.normalize(text)) + 1 for text in self.texts[split]], np.int64
        )

    def spelt(self, split: str) -> bool:
        """Whether every character of a split is in its ids, none of which is unknown."""
        return not self.vocabulary.special.unknown(self.ids[split].ids)

    @property
    def rows(self) -> Mapping[str, Sequence[str]]:  # type: ignore[override]
        """The texts."""
        return self.texts

    def about(self, split: str) -> str:
        """The size of a split in words."""
        counts = self.counts(split)
        return (
            f"{counts['texts']:,} texts, {counts['tokens']:,} tokens"
            f" ({counts['unknown'] / counts['tokens']:.1%} unknown)"
        )


def load(
    data: Mapping[str, Any],
    vocabulary: Mapping[str, Any] | Node,
    workdir: str | Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
    begun: Path | None = None,
) -> Texts:
    """Read the splits of a source and encode them; the vocabulary is kept and learned as
    `corpus.load` does, or that of the run `begun` (`corpus.inherited_vocabulary`).

    Raises:
      UserError: bad config, unreadable data, or a saved vocabulary that is damaged or of other
        settings.
    """
    source = build(SOURCES, data, "config.data")()
    prepared = callable(getattr(source, "loaded", None))  # its texts are ids already
    if not prepared and not callable(getattr(source, "texts", None)):
        raise UserError(
            f"config.data={data['name']}: language modelling needs a source with texts(split), such"
            " as text, shards, associations or tfds; one_side makes one of a source of pairs"
        )
    settings = VocabularySettings.read(vocabulary)
    if prepared:
        stored = workdir is not None and has_vocabularies(workdir)
        saved = load_vocabularies(workdir)[0] if workdir is not None and stored else None
        # a model's tokenizer, which the texts must have
        vocab = saved or inherited_vocabulary(None, settings)
        loaded: Texts = source.loaded(settings, vocab, splits)
        return loaded
    vocab = saved_or_inherited(workdir, settings, begun)
    texts = read_splits(source.texts, splits, learn=vocab is None)
    learned = vocab or Vocabulary.train(texts["train"], **settings.of_one)
    texts = {split: texts[split] for split in splits}
    ids = {split: learned.packed(chosen) for split, chosen in texts.items()}
    recalled = {
        split: _recalled(source, data["name"], texts[split], ids[split])
        for split in splits
        if hasattr(source, "recalled")
    }
    prints = {split: fingerprint((text, "") for text in chosen) for split, chosen in texts.items()}
    return Texts(texts, ids, learned, recalled, prints)


def _recalled(source: Any, name: str, texts: Sequence[str], ids: Packed) -> Packed:
    """What `source.recalled` says of the words of each text, by ids."""
    marks = Packed(np.asarray([*source.recalled(text), False], np.int32) for text in texts)
    if not np.array_equal(marks.lengths, ids.lengths):
        raise UserError(
            f"config.data={name} tells word by word what can be recalled: set"
            " config.vocabulary.kind=word"
        )
    return marks
