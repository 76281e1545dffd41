"""Sentences whose words have tags, and may have heads in a dependency tree: read, and as ids.

A row is what begins a text, the pieces of all words, what ends it. The first piece of a word has the
word's tag (tag k of C as k + 1); all else has 0, which is not predicted. A tag that only a split other
than training has is C + 1: whatever is answered there is wrong. The head of a piece is the first
piece of the head of its word, or of its own word; -1 where there is none.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from attnlab.data.columns import Examples, Packed
from attnlab.data.dataset import Dataset, Split, fingerprint_of_rows
from attnlab.data.learned import Learned
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


class TaggedTexts(Dataset[Sentence]):
    """The data of a run of tagging; classes are the tags, columns those of `encode`."""

    method = "tagged"
    things = "sentences"
    kept = "vocabulary or tags"
    parts = ("vocabularies", "labels")

    def check_all(self, by_split: Mapping[str, Sequence[Sentence]]) -> None:
        """Raises `UserError` if some sentences of the splits have trees and others have none. See
        `Dataset.check_all`.
        """
        if len({row.heads is None for sentences in by_split.values() for row in sentences}) > 1:
            raise UserError(
                f"config.data={self.name}: some sentences have trees and some have none; take trees"
                " for all or leave them out"
            )

    def learn(self, by_split: Mapping[str, Sequence[Sentence]]) -> Learned:
        """Returns a `Learned` with the vocabulary and, as classes, the sorted tags of the training
        sentences; raises `UserError` for fewer than two tags. See `Dataset.learn`.
        """
        tags = sorted({tag for sentence in by_split["train"] for tag in sentence.tags})
        if len(tags) < 2:
            raise UserError(
                f"config.data: the training split has no tag but {next(iter(tags), None)!r}; there is"
                " nothing to tell apart"
            )
        learned = super().learn(by_split)
        return dataclasses.replace(learned, classes=tuple(tags), sentences=1)

    def texts_of(self, train: Sequence[Sentence]) -> Iterable[str]:
        """See `Dataset.texts_of`."""
        return (" ".join(sentence.words) for sentence in train)

    def encoded(self, rows: Sequence[Sentence], split: str) -> Split:
        """See `Dataset.encoded`."""
        return Split(rows, encode(self.learned, rows), fingerprint_of_rows(rows))

    def cut(self, split: str, length: int) -> "tuple[TaggedTexts, int]":
        """Returns the data with each longer sentence of a split cut to the first words that fit
        into `length` tokens (heads beyond become `ROOT`), and the number of words lost; `UserError`
        if none fits.

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
        return self.with_splits({split: self.encoded(rows, split)}), lost

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the numbers of sentences, words, unknown pieces
        and tags, and whether there are trees.
        """
        words = sum(len(sentence.words) for sentence in self.rows[split])
        unknown = self.vocabulary.special.unknown(self.examples[split].packed("source").ids)
        trees = ", with trees" if self.rows[split][0].heads is not None else ""
        return (
            f"{len(self.rows[split]):,} sentences, {words:,} words ({unknown:,} unknown),"
            f" {len(self.learned.classes)} tags{trees}"
        )


def encode(learned: Learned, sentences: Sequence[Sentence]) -> Examples:
    """Encodes sentences as `Examples`: "source" (piece ids between BOS and EOS), "target" (at the
    first piece of each word 1 + its tag, all unknown tags sharing the number after the last, else
    0) and, if there are trees, "heads" (of each piece the position of its head).
    """
    numbers = {name: number for number, name in enumerate(learned.classes, 1)}
    cut = pieces(learned.vocabulary, [sentence.words for sentence in sentences])
    special = learned.vocabulary.special
    source, target, heads = [], [], []
    for sentence, words in zip(sentences, cut, strict=True):
        ids = [special.bos, *(piece for word in words for piece in word), special.eos]
        first = np.cumsum([1, *map(len, words)])  # where each word begins in the row
        tags = np.zeros(len(ids), np.int32)
        for position, tag in zip(first, sentence.tags, strict=False):
            tags[position] = numbers.get(tag, len(numbers) + 1)
        source.append(ids)
        target.append(tags)
        if sentence.heads is not None:
            piece_heads = np.full(len(ids), ROOT, np.int32)
            for word, (head, length) in enumerate(
                zip(sentence.heads, map(len, words), strict=True)
            ):
                piece_heads[first[word] : first[word] + length] = first[word]
                piece_heads[first[word]] = ROOT if head == ROOT else first[head]
            heads.append(piece_heads)
    columns = {"source": Packed(source, special.pad), "target": Packed(target, 0)}
    if heads:
        columns["heads"] = Packed(heads, ROOT)
    return Examples(**columns)


def pieces(vocabulary: Vocabulary, texts: Sequence[Sequence[str]]) -> list[list[np.ndarray]]:
    """Returns for each text a list with the ids of each of its words, an array each; a word without
    a piece gets the unknown id.

    A word behind another is cut as it is behind a blank, which matters to tokenizers that count
    the blank to the word.
    """
    return vocabulary.encode_words(
        [" " * bool(index) + word for index, word in enumerate(words)] for words in texts
    )
