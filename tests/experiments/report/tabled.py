"""Parts of the reports of synthetic sweeps, for the tests of tables, notes and figures."""

from pathlib import Path
from typing import Any

from attnlab.experiments.report import Comparison, collect, compare, tables
from attnlab.experiments.report.contents import Contents
from attnlab.pages.html import Figure, figure
from attnlab.pages.tables import Table
from tests.experiments.synthetic import SCORES, sweep


def compared(
    directory: Path, scores: Any = SCORES, method: str = "model", **changes: Any
) -> Comparison:
    """The rows of a sweep."""
    return compare(collect(sweep(directory, scores, **changes)), method)


def results(directory: Path, scores: Any = SCORES, **changes: Any) -> Table:
    records = collect(sweep(directory, scores, **changes))
    return tables.results(records, compare(records))


def cells(table: Table, row: int) -> dict[str, str]:
    return dict(zip(table.columns, table.rows[row], strict=True))


def main(contents: Contents) -> Table:
    """The table of results."""
    return tables.results(contents.records, contents.comparison)


def part(contents: Contents, title: str) -> Table:
    """The table with this title."""
    (found,) = (found for _, found in contents.parts if found.title == title)
    assert isinstance(found, Table)
    return found


def drawn(made: Figure | None) -> str:
    """A figure as HTML."""
    return figure(made)


def warned(contents: Contents, kind: str) -> list[str]:
    """The warnings of a kind."""
    return [warning.text for warning in contents.warnings if warning.kind == kind]
