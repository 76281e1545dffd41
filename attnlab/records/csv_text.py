"""Rows as CSV for programs and spreadsheets."""

import csv
import io
from collections.abc import Iterable
from typing import Any


def as_csv(rows: Iterable[Iterable[Any]], end: str = "\r\n") -> str:
    """Returns rows as the text of a CSV file (RFC 4180). A text that a spreadsheet would run as a
    formula, one that begins with =, +, - or @, gets an apostrophe before it; numbers stay, also
    those in a text.
    """
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator=end).writerows([*map(_inert, row)] for row in rows)
    return buffer.getvalue()


def _inert(cell: Any) -> Any:
    """Returns a table cell; a text that a spreadsheet would run as a formula, since it begins with
    =, +, - or @ and is no number, gets an apostrophe before it.
    """
    if not isinstance(cell, str) or not cell.lstrip().startswith(("=", "+", "-", "@")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
