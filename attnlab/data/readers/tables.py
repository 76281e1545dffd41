"""Tables that somebody else wrote: lines of cells with a separator between them."""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
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
    and returns a list of `Row` (line number, cells), without cells for a blank line; raises
    `UserError` for an invalid separator.

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
    """Returns the rows without comments and logs their number: a comment stands before the first
    word of a sentence, begins with "#", and has another number of cells than words, or a tag (the
    cell at `tag`) that no word has.

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
