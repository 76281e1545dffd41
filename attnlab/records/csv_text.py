"""Rows as CSV for programs and spreadsheets."""

from __future__ import annotations

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
    """Returns the cell, with an apostrophe before a text that a spreadsheet would run as a formula."""
    if not isinstance(cell, str) or not cell.lstrip().startswith(("=", "+", "-", "@")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
