"""The table of results of a synthetic sweep, for the tests of tables and notes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnlab.experiments.report import tables
from attnlab.experiments.report.collect import collect
from attnlab.experiments.report.comparison import compare
from attnlab.pages.tables import Table
from tests.experiments.synthetic import SCORES, sweep


def results(directory: Path, scores: Any = SCORES, **changes: Any) -> Table:
    records = collect(sweep(directory, scores, **changes))
    return tables.results(records, compare(records))


def cells(table: Table, row: int) -> dict[str, str]:
    return dict(zip(table.columns, table.rows[row], strict=True))
