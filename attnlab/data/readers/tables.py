"""Tables that somebody else wrote: lines of cells with a separator between them, and Parquet files."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from attnlab.errors import UserError, nearest

SEPARATORS: dict[str, Callable[[str], list[str]]] = {
    "tab": lambda line: [cell.strip(" ") for cell in line.split("\t")],
    "blanks": lambda line: re.split(" +", line.strip(" ")),
    "any": str.split,
}
"""What stands between cells: a tab; blanks, one or more; or any white space, as Unicode has it."""
AUTO = "auto"
_log = logging.getLogger(__name__)


class Row(NamedTuple):
    """A line of a table: its number, from 1, and its cells; a blank line has none."""

    line: int
    cells: list[str]


def split_lines(lines: Sequence[str], separator: str, setting: str) -> list[Row]:
    """Splits each line into cells at the separator ("auto": tabs if any line has one, else blanks)
    and returns rows with line numbers, no cells for a blank line; `UserError` for an invalid
    separator.

    Args:
      lines: of the file.
      separator: a name of `SEPARATORS`; "auto", tabs if the file has any, else blanks; or the very
        sign, such as "|".
      setting: what `separator` is called, for messages.

    Raises:
      UserError: a word that is no such name, or nothing.
    """
    if separator == AUTO:
        separator = "tab" if any("\t" in line for line in lines) else "blanks"
    if separator not in SEPARATORS and (not separator or separator.isalnum()):
        raise UserError(
            f"{setting}={separator!r}: expected a sign such as '|', or a name;"
            f" {nearest(separator, (AUTO, *SEPARATORS))}"
        )
    split = SEPARATORS.get(separator, lambda line: [cell.strip() for cell in line.split(separator)])
    return [
        Row(number, split(line) if line.strip() else []) for number, line in enumerate(lines, 1)
    ]


def without_comments(rows: Iterable[Row], tag: int, where: str) -> list[Row]:
    """Returns the rows without comments, which stand before the first word of a sentence, begin
    with "#" and lack the number of cells or a tag that words have; logs their number. ("#" may be a
    word.)

    Args:
      rows: words, and blank lines between sentences.
      tag: the place of the tag among the cells.
      where: the file.
    """
    rows = list(rows)
    words = [row.cells for row in rows if row.cells and not row.cells[0].startswith("#")]
    width = len(words[0]) if words else 0
    tags = {cells[tag] for cells in words if len(cells) == width > max(tag, -tag - 1)}
    remaining: list[Row] = []
    comments: list[Row] = []
    for row in rows:
        begins = not remaining or not remaining[-1].cells
        marked = begins and row.cells and row.cells[0].startswith("#")
        is_word = tags and len(row.cells) == width and row.cells[tag] in tags
        (comments if marked and not is_word else remaining).append(row)
    if comments:
        first = comments[0].line
        _log.warning("left out %d comments of %s, line %d the first", len(comments), where, first)
    return remaining


def check_widths(rows: Iterable[Row], where: str) -> None:
    """Raises `UserError` for the first row whose number of cells differs from that of the first
    row; ignores blank lines.
    """
    first: Row | None = None
    for row in rows:
        first = first or (row if row.cells else None)
        if first and row.cells and len(row.cells) != len(first.cells):
            raise UserError(
                f"{where}, line {row.line}: {len(row.cells)} column(s), line {first.line} has"
                f" {len(first.cells)}; mend the line, or say what stands between columns"
            )


KINDS = ("string", "large_string", "string_view")
"""The types of Arrow that are texts; a dictionary of one of them is taken too, all others refused."""


def parquet_texts(path: Path, field: str) -> Iterator[str]:
    """Yields the texts in the column `field` of a Parquet file, with "" for null; raises
    `UserError` if there is no such column of texts or the file is damaged.

    Raises:
      UserError: no such column, two of that name, one that holds no text, a damaged file, or
        pyarrow is not installed.
      OSError: the file cannot be read.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise UserError(
            f"reading {path} needs pyarrow; 'pip install attnlab[parquet]' installs it"
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            if (count := schema.names.count(field)) != 1:
                reason = f"{count} fields" if count else "no field"
                hint = "name them apart" if count else nearest(field, schema.names)
                raise UserError(f"{path} has {reason} {field!r}; {hint}")
            kind = schema.field(field).type
            if str(kind.value_type if pyarrow.types.is_dictionary(kind) else kind) not in KINDS:
                raise UserError(f"{path}: field {field!r} is {kind}, not a text")
            for batch in file.iter_batches(batch_size=1024, columns=[field]):
                yield from (text or "" for text in batch.column(field).to_pylist())
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged or no Parquet file: {error}") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise UserError(f"{path} is damaged: {error}") from error  # pyarrow's own
