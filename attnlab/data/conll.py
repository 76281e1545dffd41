"""Tagged sentences in files, plain, .gz or .xz: CoNLL-U, with its dependency trees, and columns as
the shared tasks of CoNLL have them (chunks, named entities).

Words stand on a line each, a blank line ends a sentence.

    CoNLL-U    ten columns with tabs between them: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC; lines with # are comments;
               words of several tokens (IDs such as 1-2) and words that are not there (8.1) are passed over
    columns    columns with tabs between them if the file has any tab, else blanks (`separator`: or what else); every word has as
               many; lines with -DOCSTART-, and comments before a sentence (# and no tag of a word), are passed over

Source: J. Nivre et al., "Universal Dependencies v2", LREC 2020; E. F. Tjong Kim Sang, F. De
Meulder, "Introduction to the CoNLL-2003 Shared Task", CoNLL 2003.
"""

import graphlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnlab.data.files import SplitFiles, read_lines
from attnlab.data.readers import tables
from attnlab.data.readers.tables import Row
from attnlab.data.tagged import ROOT, Sentence
from attnlab.errors import UserError

_COLUMN = {"upos": 3, "xpos": 4, "deprel": 7}


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
    separator: str = tables.AUTO

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
        rows = tables.split_lines(read_lines(path, "\r"), self.separator, "config.data.separator")
        rows = [row for row in rows if not (row.cells and row.cells[0].startswith("-DOCSTART-"))]
        if self.separator != "any":
            position = self.tag - 1 if self.tag > 0 else self.tag
            rows = tables.without_comments(rows, position, str(path))
            tables.check_widths(rows, str(path))
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
    rows = tables.split_lines(read_lines(path), "tab", "")
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
