"""Sentences whose words have tags, and may have heads in a dependency tree: read, and as ids.

A row is what begins a text, the pieces of all words, what ends it. The first piece of a word has the
word's tag (tag k of C as k + 1); all else has 0, which is not predicted. A tag that only a split other
than training has is C + 1: whatever is answered there is wrong. The head of a piece is the first
piece of the head of its word, or of its own word; -1 where there is none.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from attnlab.config.schema import Node
from attnlab.data import read_splits
from attnlab.data.columns import Examples, Packed
from attnlab.data.corpus import (
    VocabularySettings,
    fingerprint_of_rows,
    giving,
    inherited_vocabulary,
    load_vocabularies,
)
from attnlab.data.labelled import Classes, OfClasses
from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError

ROOT = -1


class Sentence(NamedTuple):
    """Words, a tag for each, and the number of each word's head, counted from 0, `ROOT` for none;
    `heads` is None where no tree is known.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class TaggedTexts(OfClasses):
    """The data of a run.

    Attributes:
      rows: split to its sentences.
      examples: split to the same as ids.
      vocabulary: of the words.
      classes: the tags.
      fingerprints: split to the `fingerprint` of its sentences, for the manifest.
    """

    kept: ClassVar[str] = "vocabulary or tags"
    things: ClassVar[str] = "sentences"

    rows: Mapping[str, Sequence[Sentence]]
    examples: Mapping[str, Examples]
    vocabulary: Vocabulary
    classes: Classes
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def cut(self, split: str, length: int) -> tuple[TaggedTexts, int]:
        """The same with sentences of at most `length` tokens in a split: of longer ones the first
        words that fit as a whole, heads beyond them as `ROOT`; and how many words are lost.

        Raises:
          UserError: not even the first word of a sentence fits.
        """
        examples = self.examples[split]
        rows, lost = list(self.rows[split]), 0
        for number in np.flatnonzero(examples.lengths > length).tolist():
            (words, tags, heads), target = rows[number], examples.packed("target")[number]
            ends = np.append(np.flatnonzero(target)[1:], len(target) - 1)
            count = int((ends < length).sum())
            if not count:
                raise UserError(
                    f"config.batch.max_length={length}: the word {words[0]!r} of the {split} split"
                    f" has {ends[0] - 1} pieces, which with two ends do not fit; raise it"
                )
            heads = heads and tuple(head if head < count else ROOT for head in heads[:count])
            rows[number] = Sentence(words[:count], tags[:count], heads)
            lost += len(words) - count
        cut = dataclasses.replace(
            self,
            rows={**self.rows, split: rows},
            examples={**self.examples, split: encode(self.vocabulary, self.classes, rows)},
            fingerprints={**self.fingerprints, split: fingerprint_of_rows(rows)},
        )
        return cut, lost

    def about(self, split: str) -> str:
        """Sentences, words, and how many of them are unknown, in a line."""
        words = sum(len(sentence.words) for sentence in self.rows[split])
        unknown = self.vocabulary.special.unknown(self.examples[split].packed("source").ids)
        trees = ", with trees" if self.rows[split][0].heads is not None else ""
        return (
            f"{len(self.rows[split]):,} sentences, {words:,} words ({unknown:,} unknown),"
            f" {len(self.classes.names)} tags{trees}"
        )


def load(
    data: Mapping[str, Any],
    vocabulary: Mapping[str, Any] | Node,
    workdir: Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
    begun: Path | None = None,
) -> TaggedTexts:
    """Read the splits of a source and encode them; see `attnlab.data.labelled.load`.

    Args:
      data: the config node of the source.
      vocabulary: the config node of `VocabularySettings`.
      workdir: of the run, for its vocabulary and tags.
      splits: which to read; also read, but not returned, is "train" where something has to be
        learned.
      begun: a run whose weights this one begins with: its vocabulary is taken, see
        `corpus.inherited_vocabulary`.

    Raises:
      UserError: bad config, unreadable data, fewer than two tags, what was saved is damaged or of
        other settings, sentences with trees and without.
    """
    of = giving(data, "tagged")
    settings = VocabularySettings.read(vocabulary)
    folder = workdir if workdir is not None and TaggedTexts.saved(workdir) else None
    rows: dict[str, Sequence[Sentence]] = read_splits(of.tagged, splits, learn=folder is None)
    if len({sentence.heads is None for sentences in rows.values() for sentence in sentences}) > 1:
        raise UserError(
            f"config.data={data['name']}: some sentences have trees and some have none; take trees"
            " for all or leave them out"
        )
    if folder is not None:
        (learned, _), classes = load_vocabularies(folder, settings), Classes.load(folder)
    else:
        learned, classes = _learn(rows["train"], settings, inherited_vocabulary(begun, settings))
    rows = {split: rows[split] for split in splits}
    return TaggedTexts(
        rows,
        {split: encode(learned, classes, sentences) for split, sentences in rows.items()},
        learned,
        classes,
        {split: fingerprint_of_rows(sentences) for split, sentences in rows.items()},
    )


def encode(vocabulary: Vocabulary, classes: Classes, sentences: Sequence[Sentence]) -> Examples:
    """Sentences as columns "source", "target" and, where there are trees, "heads"; see above."""
    numbers = {name: number for number, name in enumerate(classes.names, 1)}
    cut = pieces(vocabulary, [sentence.words for sentence in sentences])
    special = vocabulary.special
    source, target, heads = [], [], []
    for sentence, words in zip(sentences, cut, strict=True):
        ids = [special.bos, *(piece for word in words for piece in word), special.eos]
        first = np.cumsum([1, *map(len, words)])  # where each word begins in the row
        tags = np.zeros(len(ids), np.int32)
        for at, tag in zip(first, sentence.tags, strict=False):
            tags[at] = numbers.get(tag, len(numbers) + 1)
        source.append(ids)
        target.append(tags)
        if sentence.heads is not None:
            above = np.full(len(ids), ROOT, np.int32)
            for word, (head, length) in enumerate(
                zip(sentence.heads, map(len, words), strict=True)
            ):
                above[first[word] : first[word] + length] = first[word]
                above[first[word]] = ROOT if head == ROOT else first[head]
            heads.append(above)
    columns = {"source": Packed(source, special.pad), "target": Packed(target, 0)}
    if heads:
        columns["heads"] = Packed(heads, ROOT)
    return Examples(**columns)


def pieces(vocabulary: Vocabulary, texts: Sequence[Sequence[str]]) -> list[list[np.ndarray]]:
    """The ids of every word of every text; a word that has none is unknown.

    A word behind another is cut as it is behind a blank, which matters to tokenizers that count
    the blank to the word.
    """
    flat = [" " * bool(at) + word for words in texts for at, word in enumerate(words)]
    unknown = np.array([vocabulary.special.unk or 0], np.int32)
    encoded = iter([ids if len(ids) else unknown for ids in vocabulary.encode_stream(flat)])
    return [[next(encoded) for _ in words] for words in texts]


def _learn(
    sentences: Sequence[Sentence], settings: VocabularySettings, stored: Vocabulary | None
) -> tuple[Vocabulary, Classes]:
    """Vocabulary and tags of the training split."""
    tags = Counter(tag for sentence in sentences for tag in sentence.tags)
    if len(tags) < 2:
        raise UserError(
            f"config.data: the training split has no tag but {next(iter(tags), None)!r}; there is"
            " nothing to tell apart"
        )
    texts = (" ".join(sentence.words) for sentence in sentences)
    return stored or Vocabulary.train(texts, **settings.of_one), Classes(tuple(sorted(tags)), 1)
