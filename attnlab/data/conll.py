"""Tagged sentences in files, plain, .gz or .xz: CoNLL-U, with its dependency trees, and columns as
the shared tasks of CoNLL have them (chunks, named entities).

Words stand on a line each, a blank line ends a sentence.

    CoNLL-U    ten columns with tabs between them: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC; lines with # are comments;
               words of several tokens (IDs such as 1-2) and words that are not there (8.1) are passed over
    columns    columns with blanks or tabs between them; -DOCSTART- lines are passed over

Source: J. Nivre et al., "Universal Dependencies v2", LREC 2020; E. F. Tjong Kim Sang, F. De
Meulder, "Introduction to the CoNLL-2003 Shared Task", CoNLL 2003.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnlab.data.files import find_file, read_lines
from attnlab.data.tagged import ROOT, Sentence
from attnlab.errors import UserError

_COLUMN = {"upos": 3, "xpos": 4, "deprel": 7}
_Line = tuple[int, list[str]]  # its number in the file, and its columns


@dataclass(frozen=True)
class Conllu:
    """Sentences of a treebank in CoNLL-U, with their dependency trees.

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split, without .gz or .xz.
      tags: the column of the tags: "upos", "xpos" or "deprel".
      trees: whether heads are read.
    """

    directory: str = ""
    train: str = "train.conllu"
    valid: str = "dev.conllu"
    test: str = "test.conllu"
    tags: Literal["upos", "xpos", "deprel"] = "upos"
    trees: bool = True

    def tagged(self, split: str) -> list[Sentence]:
        """The sentences of `split`.

        Raises:
          UserError: a file is missing, unreadable, damaged, not UTF-8, or has no sentence; a line
            without ten columns; a head that is no word of the sentence. The message has the file
            and the line.
        """
        path = find_file(self.directory, getattr(self, split))
        return [self._sentence(path, lines) for lines in _sentences(path, _of_conllu)]

    def _sentence(self, path: Path, lines: list[_Line]) -> Sentence:
        words = tuple(columns[1] for _, columns in lines)
        tags = tuple(columns[_COLUMN[self.tags]] for _, columns in lines)
        if not self.trees:
            return Sentence(words, tags)
        places = {columns[0]: place for place, (_, columns) in enumerate(lines)}
        heads = []
        for place, (number, columns) in enumerate(lines):
            head = ROOT if columns[6] == "0" else places.get(columns[6])
            if head is None or head == place:
                raise UserError(
                    f"{path}, line {number}: the head of {columns[1]!r} is {columns[6]!r}, expected"
                    " the ID of another word of the sentence, or 0 for a root"
                )
            heads.append(head)
        _check_tree(path, lines, heads)
        return Sentence(words, tags, tuple(heads))


@dataclass(frozen=True)
class Columns:
    """Sentences in columns, a word and its tag on each line.

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split, without .gz or .xz.
      word, tag: their columns, counted from 1; -1 is the last.
    """

    directory: str = ""
    train: str = "train.txt"
    valid: str = "valid.txt"
    test: str = "test.txt"
    word: int = 1
    tag: int = -1

    def tagged(self, split: str) -> list[Sentence]:
        """The sentences of `split`.

        Raises:
          UserError: as `Conllu.tagged`; a line with too few columns.
        """
        if 0 in (self.word, self.tag) or self.word == self.tag:
            raise UserError(
                f"config.data.word={self.word} and config.data.tag={self.tag} are two columns,"
                " counted from 1, or from -1, the last"
            )
        path = find_file(self.directory, getattr(self, split))
        return [
            Sentence(
                tuple(self._cell(path, line, self.word) for line in lines),
                tuple(self._cell(path, line, self.tag) for line in lines),
            )
            for lines in _sentences(path, _of_columns)
        ]

    @staticmethod
    def _cell(path: Path, line: _Line, column: int) -> str:
        number, cells = line
        if len(cells) < max(abs(column), 2):
            raise UserError(
                f"{path}, line {number}: {len(cells)} column(s), expected a word and its tag in"
                f" column {column}"
            )
        return cells[column - 1 if column > 0 else column]


def _sentences(path: Path, cells: object) -> Iterator[list[_Line]]:
    """The lines of each sentence; `UserError` if there is none."""
    assert callable(cells)
    lines: list[_Line] = []
    none = True
    for number, line in enumerate([*read_lines(path), ""], 1):
        if line.strip():
            found = cells(path, number, line)
            lines += [] if found is None else [(number, found)]
        elif lines:
            yield lines
            lines, none = [], False
    if none:
        raise UserError(f"{path} holds no sentence")


def _of_conllu(path: Path, number: int, line: str) -> list[str] | None:
    if line.startswith("#"):
        return None
    columns = line.split("\t")
    if len(columns) != 10:
        raise UserError(
            f"{path}, line {number}: {len(columns)} column(s) with tabs between them, CoNLL-U has 10"
        )
    return columns if columns[0].isdigit() else None


def _of_columns(path: Path, number: int, line: str) -> list[str] | None:
    return None if line.startswith("-DOCSTART-") else line.split()


def _check_tree(path: Path, lines: list[_Line], heads: list[int]) -> None:
    """Every word is below a root."""
    safe: set[int] = set()
    for word in range(len(heads)):
        way: list[int] = []
        while word != ROOT and word not in safe and word not in way:
            way.append(word)
            word = heads[word]
        if word in way:
            number, columns = lines[word]
            raise UserError(
                f"{path}, line {number}: {columns[1]!r} is below itself; the heads of a sentence"
                " must be a tree"
            )
        safe.update(way)
