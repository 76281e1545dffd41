"""Cells of a CSV file come back as they were, and no spreadsheet runs one."""

import csv
from typing import Any

import pytest

from attnlab.records.csv_text import as_csv

CELLS = [
    ("=1+1", "'=1+1"),
    ("+cmd|' /C calc'!A0", "'+cmd|' /C calc'!A0"),
    ("@SUM(A1)", "'@SUM(A1)"),
    ("\t=1", "'\t=1"),
    ("-0.5", "-0.5"),
    (-2, "-2"),
    ('a "b", =c', 'a "b", =c'),
]


@pytest.mark.quick
@pytest.mark.parametrize(("cell", "read"), CELLS)
def test_cells(cell: Any, read: str) -> None:
    text = as_csv([("name", "n"), (cell, 1)])
    assert [*csv.reader(text.splitlines(keepends=True))] == [["name", "n"], [read, "1"]]
    assert text.endswith(",1\r\n") and as_csv([("a",)], "\n") == "a\n"
