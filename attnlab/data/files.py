"""The user's own files, plain, .gz, .xz or .zst: sentence pairs in one file per language or a table with
a column per language, and plain text.

Lines end at "\\n" and nowhere else (U+2028 and the like are text), are UTF-8, and are stripped of
white space at both ends, which those of plain text keep.
"""

import contextlib
import gzip
import io
import logging
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from attnlab.errors import UserError, nearest
from attnlab.records.files import expanded


def _open_zst(file: BinaryIO) -> BinaryIO:
    """Opens the bytes of a .zst file as a decompressed stream."""
    import pyarrow

    return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd"))


PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".zst": _open_zst}
HERE = " in the current folder, which an empty config.data.directory means"
MOST_UNPACKED, MOST_RATIO = 256 << 20, 300
"""A packed file holds at most so many bytes, or so many times its size if that is more."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SplitFiles:
    """Base of the sources that have a file for each split.

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split, without .gz or .xz.
    """

    directory: str = ""
    train: str = "train"
    valid: str = "valid"
    test: str = "test"

    def path(self, split: str) -> Path:
        """The file of `split`, see `find_file`; raises `UserError` where there is none."""
        return find_file(self.directory, getattr(self, split))


@dataclass(frozen=True)
class ParallelFiles(SplitFiles):
    """Line n of `<prefix>.<source>` translates line n of `<prefix>.<target>`.

    Pairs of blank lines are skipped, and their number is logged.

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the name of the files of this split, without their endings ("train").
      source, target: the ending of each language, "de" for `train.de` or `train.de.gz`.
    """

    source: str = "de"
    target: str = "en"

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Reads the two files of `split` and returns line n of each as a pair, without pairs of
        blank lines; raises `UserError` if their numbers of lines differ or one side alone is blank.

        Raises:
          UserError: a file is missing, unreadable, damaged, empty or not UTF-8; the two differ in
            their number of lines; a line is blank on one side only. The message has the file and,
            where it applies, the line.
        """
        prefix = getattr(self, split)
        source, target = (
            find_file(self.directory, f"{prefix}.{language}")
            for language in (self.source, self.target)
        )
        left, right = read_lines(source), read_lines(target)
        if len(left) != len(right):
            raise UserError(
                f"{source} has {len(left)} lines, but {target} has {len(right)}; line n of each"
                " must be a pair"
            )
        return _without_blanks(zip(left, right, strict=True), str(source), str(target))


@dataclass(frozen=True)
class TabFiles(SplitFiles):
    """One pair, or one labelled text or pair, per line of a table whose columns are separated by
    tabs.

    Blank lines are skipped, and their number is logged.

    Attributes:
      directory: where the tables lie; "" for the current folder.
      train, valid, test: the table of each split, without .gz or .xz.
      source, target: the columns of the two texts, counted from 1; `target` is 0 where one text is
        labelled. More columns do no harm.
      label: the column of the labels, which are taken as they stand; 0 for none.
      header: lines above the data, a row of names as a rule; they are skipped.
    """

    train: str = "train.tsv"
    valid: str = "valid.tsv"
    test: str = "test.tsv"
    source: int = 1
    target: int = 2
    label: int = 0
    header: int = 0

    @property
    def sentences(self) -> int:
        """How many texts a labelled example has."""
        return 2 if self.target else 1

    def pairs(self, split: str) -> list[tuple[str, str]]:
        """Reads the table of `split` and returns the source and target columns of each line as a
        pair, without pairs of blanks; raises `UserError` if one side alone is blank.

        Raises:
          UserError: as for `ParallelFiles`; also a line with too few columns, or a column number
            below 1.
        """
        if min(self.source, self.target) < 1:
            raise UserError(
                f"config.data.source={self.source} and config.data.target={self.target} are"
                " columns, counted from 1"
            )
        path, rows = self._rows(split, self.source, self.target)
        cells = ((source, target) for source, target in rows)
        return _without_blanks(
            cells, f"column {self.source} of {path}", f"column {self.target} of {path}", self.header
        )

    def labelled(self, split: str) -> list[tuple[tuple[str, ...], str]]:
        """Reads the table of `split` and returns for each line ((text,) or (text, text), label),
        without blank lines; raises `UserError` if only some of these columns are blank.

        Raises:
          UserError: as for `pairs`; also a line where a text or the label is blank.
        """
        columns = [column for column in (self.source, self.target) if column]
        if min(self.source, self.label) < 1 or self.target < 0 or self.label in columns:
            raise UserError(
                f"config.data.source={self.source}, target={self.target} and label={self.label} are"
                " different columns, counted from 1; target is 0 where one text is labelled"
            )
        path, rows = self._rows(split, *columns, self.label)
        examples: list[tuple[tuple[str, ...], str]] = []
        for number, row in enumerate(rows, 1 + self.header):
            if all(row):
                examples.append((row[:-1], row[-1]))
            elif any(row):
                blank = [*columns, self.label][row.index("")]
                raise UserError(
                    f"{path}, line {number}: column {blank} is blank; fill it in or remove the line"
                )
        if not examples:
            raise UserError(f"{path} holds nothing but blank lines")
        return examples

    def _rows(self, split: str, *columns: int) -> tuple[Path, list[tuple[str, ...]]]:
        """Returns the path of the table of `split` and the given columns of each line below the
        header, "" for a blank line; raises `UserError` for a line with too few columns.
        """
        path, needed = self.path(split), max(columns)
        if self.header < 0:
            raise UserError(f"config.data.header={self.header} is a number of lines, 0 or more")
        rows = [line.split("\t") for line in read_lines(path, "\r")[self.header :]]
        for number, row in enumerate(rows, 1 + self.header):
            if len(row) < needed and any(map(str.strip, row)):
                raise UserError(
                    f"{path}, line {number}: {len(row)} columns, but column {needed} is asked for"
                )
        return path, [
            (
                tuple(row[column - 1].strip() for column in columns)
                if len(row) >= needed
                else ("",) * len(columns)
            )
            for row in rows
        ]


@dataclass(frozen=True)
class TextFiles(SplitFiles):
    """Every line is a text; blank ones too, of nothing but their end.

    Attributes:
      directory: where the files lie; "" for the current folder.
      train, valid, test: the file of each split, or a part of its lines: "input.txt[:90%]",
        "input.txt[90%:95%]", "input.txt[95%:]".
    """

    train: str = "train.txt"
    valid: str = "valid.txt"
    test: str = "test.txt"

    def texts(self, split: str) -> list[str]:
        """Reads the file of `split` and returns its lines, or the configured percentage range of
        them, blank ones included; raises `UserError` if all are blank.

        Raises:
          UserError: as for `ParallelFiles`; also a part that is none, or without a single word.
        """
        name, begin, end = part(split, getattr(self, split))
        path = find_file(self.directory, name)
        lines = read_lines(path, "\r")
        texts = lines[len(lines) * begin // 100 : len(lines) * end // 100]
        if not any(map(str.strip, texts)):
            raise UserError(
                f"config.data.{split}={getattr(self, split)!r}: no text in {len(texts)} of the"
                f" {len(lines)} lines of {path}"
            )
        return texts


def part(split: str, setting: str) -> tuple[str, int, int]:
    """Parses a setting such as "input.txt[90%:95%]" into the file name and the first and last
    percent of its lines (0 and 100 if not given); raises `UserError` for an impossible range.

    Raises:
      UserError: no such share.
    """
    name, begin, end = re.fullmatch(
        r"(.*?)(?:\[(?:(\d{1,9})%)?:(?:(\d{1,9})%)?\])?", setting, re.DOTALL
    ).groups()  # type: ignore[union-attr]
    share = int(begin or 0), int(end or 100)
    if not 0 <= share[0] < share[1] <= 100:
        raise UserError(
            f"config.data.{split}={setting!r}: the part begins at {share[0]} % and ends at"
            f" {share[1]} %; expected 0 <= from < to <= 100"
        )
    return name, *share


def find_file(directory: str, name: str) -> Path:
    """Returns the path of the file `name` in `directory`, or of `name` with .gz, .xz or .zst
    appended, whichever exists first; raises `UserError` with similar names if none does.

    Raises:
      UserError: there is none; says what was tried and what lies there under a similar name.
    """
    expected = expanded(directory) / name
    folder_hint = "" if directory or expected.is_absolute() else HERE
    candidates = [expected.with_name(expected.name + ending) for ending in ("", *PACKED)]
    for path in candidates:
        if os.path.exists(path):
            return path
    try:
        os.listdir(expected.parent)
    except OSError as error:
        why = f"the folder {expected.parent} cannot be read ({error.strerror})"
        hint = f"; {alike(expected.parent)}" if isinstance(error, FileNotFoundError) else ""
        raise UserError(f"cannot find {expected}{folder_hint}: {why}{hint}") from error
    names = ", ".join(path.name for path in candidates)
    raise UserError(f"cannot find {expected}{folder_hint} (tried {names}); {alike(expected)}")


def alike(path: Path) -> str:
    """Returns the end of an error message about a missing path: the most similar names in its
    folder, or all if they are few, or the number of entries if none is similar, or that the folder
    cannot be read.

    Where folders on the way to it are missing too, the near names of the first of them.
    """
    while not path.parent.is_dir():
        path = path.parent
    try:
        present = os.listdir(path.parent)
    except OSError as error:
        return f"the folder {path.parent} cannot be read ({error.strerror})"
    hint = nearest(path.name, present)
    if len(hint) <= 300:
        near = hint.startswith("did you mean") or path.parent == Path()
        return hint if near else f"in {path.parent}/, {hint}"
    return f"the folder has {len(present)} entries, none with a similar name"


def read_lines(path: Path, strip: str | None = None) -> list[str]:
    """Reads a UTF-8 file, decompressed if its name ends in .gz, .xz or .zst, and returns its lines
    without the characters `strip` (None: white space) at both ends; raises `UserError` if it is
    empty or damaged.

    Raises:
      UserError: unreadable, damaged, empty, or not UTF-8 (with the line).
    """
    content = contents(path)
    if not content:
        raise UserError(f"{path} is empty")
    lines = decoded(content, path).removeprefix("\ufeff").split("\n")
    if not lines[-1]:  # the end of the last line, not another one
        lines.pop()
    return [line.strip(strip) for line in lines]


def contents(path: Path) -> bytes:
    """Returns all bytes of a file, decompressed if its name ends in .gz, .xz or .zst; raises `UserError`
    if it is damaged or would decompress to an extreme size.

    Raises:
      UserError: unreadable, damaged, or packed so that a small file would fill the memory.
    """
    with unpacked(path) as (stream, _):
        size = path.stat().st_size
        if path.suffix not in PACKED:
            return stream.read()
        limit = max(MOST_UNPACKED, MOST_RATIO * size)
        content = stream.read(limit + 1) if size else b""
        if len(content) <= limit:
            return content
    raise UserError(
        f"{path} holds more than {limit >> 20} MiB in {size} bytes, more than {MOST_RATIO} times"
        " its size; unpack it if that is meant"
    )


@contextlib.contextmanager
def unpacked(
    path: Path, error_class: type[UserError] = UserError
) -> Iterator[tuple[BinaryIO, Callable[[], int]]]:
    """Opens a file for a `with` statement, decompressed if its name ends in .gz, .xz or .zst, and
    yields its stream of bytes and a function that returns how many bytes of the file are read;
    raises `error_class` if it is damaged.

    Raises:
      UserError: unreadable; if it is no whole packed file, of the class `error_class`.
    """
    try:
        with open(path, "rb") as file, contextlib.ExitStack() as stack:
            unpack = PACKED.get(path.suffix)
            yield (stack.enter_context(unpack(file)) if unpack else file), file.tell
    # before OSError, which the first one is
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise error_class(f"{path} is damaged or no {path.suffix} file: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def decoded(
    content: bytes, path: Path, first_line: int = 1, error_class: type[UserError] = UserError
) -> str:
    """Returns UTF-8 bytes as a str; raises an error of the class `error_class` with the path and line,
    counted from `first_line`, if they are not UTF-8.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = first_line + content.count(b"\n", 0, error.start)
        raise error_class(
            f"{path}, line {line}: not UTF-8 (byte 0x{content[error.start]:02x}); convert the file"
            " to UTF-8"
        ) from error


def _without_blanks(
    pairs: Iterable[tuple[str, str]], source: str, target: str, header: int = 0
) -> list[tuple[str, str]]:
    """Returns the pairs with text on both sides, and logs the number of pairs blank on both; raises
    `UserError`, with the names `source` and `target` of the sides, for a pair blank on one side, or
    if none is left.

    Lines are counted from those `header` the pairs on.
    """
    complete, blank = [], 0
    for number, pair in enumerate(pairs, 1 + header):
        if all(pair):
            complete.append(pair)
        elif any(pair):
            empty, full = (target, source) if pair[0] else (source, target)
            raise UserError(
                f"{empty}, line {number}: blank, while {full} has text there; fill it in or remove"
                " the line from both sides"
            )
        else:
            blank += 1
    if not complete:
        raise UserError(f"{source} and {target} hold nothing but blank lines")
    if blank:
        _log.warning("skipped %d blank lines of %s and %s", blank, source, target)
    return complete
