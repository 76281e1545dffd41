"""Sentences whose words have tags, and may have heads in a dependency tree: read from files, plain, .gz or
.xz, and as ids.

A row is what begins a text, the pieces of all words, what ends it. The first piece of a word has the
word's tag (tag k of C as k + 1); all else has 0, which is not predicted. A tag that only a split other
than training has is C + 1: whatever is answered there is wrong. The head of a piece is the first
piece of the head of its word, or of its own word; -1 where there is none.

In files of the shared tasks of CoNLL (chunks, named entities) and in CoNLL-U, with its dependency
trees, words stand on a line each, and a blank line ends a sentence.

    CoNLL-U    ten columns with tabs between them: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC; lines with # are comments;
               words of several tokens (IDs such as 1-2) and words that are not there (8.1) are passed over
    columns    columns with tabs between them if the file has any tab, else blanks (`separator`: or what else); every word has as
               many; lines with -DOCSTART-, and comments before a sentence (# and no tag of a word), are passed over

Source: J. Nivre et al., "Universal Dependencies v2", LREC 2020; E. F. Tjong Kim Sang, F. De
Meulder, "Introduction to the CoNLL-2003 Shared Task", CoNLL 2003.
"""

import dataclasses
import graphlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from attnlab.data.columns import Examples, Packed
from attnlab.data.dataset import Dataset, Split, fingerprint_of_rows
from attnlab.data.files import SplitFiles, read_lines
from attnlab.data.learned import Learned
from attnlab.data.readers.records import AUTO, Row, check_widths, split_lines, without_comments
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


_COLUMN = {"upos": 3, "xpos": 4, "deprel": 7}


@dataclasses.dataclass(frozen=True)
class Conllu(SplitFiles):
    """Sentences of a treebank in CoNLL-U, with their dependency trees.

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split, without .gz or .xz.
      tags: the column of the tags: "upos", "xpos" or "deprel".
      trees: whether heads are read.
    """

    train: str = "train.conllu"
    valid: str = "dev.conllu"
    test: str = "test.conllu"
    tags: Literal["upos", "xpos", "deprel"] = "upos"
    trees: bool = True

    def tagged(self, split: str) -> list[Sentence]:
        """Reads the file of `split` and returns its sentences, each with words, tags and, with
        `trees`, heads.

        Raises:
          UserError: a file is missing, unreadable, damaged, not UTF-8, or has no sentence; a line
            without ten columns; a head that is no word of the sentence. The message has the file
            and the line.
        """
        path = self.path(split)
        return [self._sentence(path, lines) for lines in _group_sentences(path, _conllu_rows(path))]

    def _sentence(self, path: Path, lines: list[Row]) -> Sentence:
        """Returns the `Sentence` of the lines of one sentence in a file (numbered rows of ten
        cells): its words, tags and, with `trees`, heads; raises `UserError` for a head that is no
        other word of the sentence, or for a cycle of heads.
        """
        words = tuple(columns[1] for _, columns in lines)
        tags = tuple(columns[_COLUMN[self.tags]] for _, columns in lines)
        if not self.trees:
            return Sentence(words, tags)
        positions = {columns[0]: position for position, (_, columns) in enumerate(lines)}
        heads = []
        for position, (number, columns) in enumerate(lines):
            head = ROOT if columns[6] == "0" else positions.get(columns[6])
            if head is None or head == position:
                raise UserError(
                    f"{path}, line {number}: the head of {columns[1]!r} is {columns[6]!r}, expected"
                    " the ID of another word of the sentence, or 0 for a root"
                )
            heads.append(head)
        _check_tree(path, lines, heads)
        return Sentence(words, tags, tuple(heads))


@dataclasses.dataclass(frozen=True)
class Columns(SplitFiles):
    """Sentences in columns, a word and its tag on each line.

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split, without .gz or .xz.
      word, tag: their columns, counted from 1; -1 is the last.
      separator: what stands between columns: "auto", "tab", "blanks", or a sign such as "|"; "any"
        is all white space, with no comments and lines of any length, as read before there was this setting.
    """

    train: str = "train.txt"
    valid: str = "valid.txt"
    test: str = "test.txt"
    word: int = 1
    tag: int = -1
    separator: str = AUTO

    def tagged(self, split: str) -> list[Sentence]:
        """Returns the sentences in the file of `split` as a list of `Sentence`, each with its words
        and their tags from the two configured columns.

        Raises:
          UserError: as `Conllu.tagged`; a line with other columns than the first, or without a
            word or a tag; no such separator.
        """
        if 0 in (self.word, self.tag) or self.word == self.tag:
            raise UserError(
                f"config.data.word={self.word} and config.data.tag={self.tag} are two columns,"
                " counted from 1, or from -1, the last"
            )
        path = self.path(split)
        return [
            Sentence(
                tuple(self._cell(path, line, self.word) for line in lines),
                tuple(self._cell(path, line, self.tag) for line in lines),
            )
            for lines in _group_sentences(path, self._rows(path))
        ]

    def _rows(self, path: Path) -> list[Row]:
        """Reads a file as rows of cells, blank lines included, without -DOCSTART- lines; unless the
        separator is "any", also drops comments and raises `UserError` if rows differ in width.
        """
        rows = split_lines(read_lines(path, "\r"), self.separator, "config.data.separator")
        rows = [row for row in rows if not (row.cells and row.cells[0].startswith("-DOCSTART-"))]
        if self.separator != "any":
            position = self.tag - 1 if self.tag > 0 else self.tag
            rows = without_comments(rows, position, str(path))
            check_widths(rows, str(path))
        return rows

    @staticmethod
    def _cell(path: Path, line: Row, column: int) -> str:
        """Returns the cell of a line (its number and cells) in `column`, counted from 1, or from -1
        as the last; raises `UserError` if the line has no such column or only one, or if the cell is
        empty.
        """
        number, cells = line
        if len(cells) < max(abs(column), 2):
            raise UserError(
                f"{path}, line {number}: {len(cells)} column(s), expected a word and its tag in"
                f" column {column}"
            )
        if not (cell := cells[column - 1 if column > 0 else column]):
            raise UserError(f"{path}, line {number}: column {column} is empty")
        return cell


def _group_sentences(path: Path, rows: list[Row]) -> list[list[Row]]:
    """Returns the sentences of a file, each as a list of the rows between two blank lines; raises
    `UserError`, which names the file, if it has no sentence.
    """
    groups = itertools.groupby(rows, lambda row: bool(row.cells))
    sentences = [list(words) for is_sentence, words in groups if is_sentence]
    if not sentences:
        raise UserError(f"{path} holds no sentence")
    return sentences


def _conllu_rows(path: Path) -> list[Row]:
    """Reads a CoNLL-U file as rows of ten cells, and blank lines, without comments, multiword
    tokens and empty nodes; raises `UserError` for a line without ten columns.
    """
    rows = split_lines(read_lines(path), "tab", "")
    rows = [row for row in rows if not (row.cells and row.cells[0].startswith("#"))]
    for number, columns in rows:
        if len(columns) not in (0, 10):
            raise UserError(
                f"{path}, line {number}: {len(columns)} column(s) with tabs between them, CoNLL-U"
                " has 10"
            )
    return [row for row in rows if not row.cells or row.cells[0].isdigit()]


def _check_tree(path: Path, lines: list[Row], heads: list[int]) -> None:
    """Raises `UserError`, which names a line of the file, if the heads of a sentence (for each word
    the number of its head, or `ROOT`) contain a cycle.
    """
    try:
        graphlib.TopologicalSorter({word: (head,) for word, head in enumerate(heads)}).prepare()
    except graphlib.CycleError as error:
        number, columns = lines[error.args[1][0]]
        raise UserError(
            f"{path}, line {number}: {columns[1]!r} is below itself; the heads of a sentence"
            " must be a tree"
        ) from error
