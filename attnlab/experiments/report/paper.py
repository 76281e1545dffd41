"""The main table for a paper: three columns, or those that the user names."""

import dataclasses
from collections.abc import Sequence

from attnlab.errors import UserError, nearest
from attnlab.experiments.report import tables
from attnlab.experiments.report.collect import Records
from attnlab.experiments.report.comparison import Comparison, Row
from attnlab.experiments.report.notes import score_notes
from attnlab.pages.tables import NONE, Table, mean, p_value, signed


def paper(records: Records, comparison: Comparison, columns: Sequence[str] = ()) -> Table:
    """Returns a table for a paper (variant, mean with interval and, on the test split, difference
    with p), or the given `columns` of the main table, and raises UserError for an unknown column.

    Args:
      records: of the sweep.
      comparison: its rows.
      columns: of the main table, to be taken instead; () for none.

    Raises:
      UserError: the main table has no such column.
    """
    whole = tables.results(records, comparison)
    if columns:
        for name in columns:
            if name not in whole.columns:
                raise UserError(f"--columns: no column {name!r}; {nearest(name, whole.columns)}")
        chosen = whole.only(columns)
        if set(columns) & set(tables.COSTS):
            return chosen
        return dataclasses.replace(chosen, notes=score_notes(records, comparison))
    heads: tuple[str, ...] = ("variant", comparison.basis.metric)
    if comparison.basis.split == "test":
        heads = (*heads, f"difference to {records.plan.baseline}")
    rows = tuple(
        (row.name, mean(row.summary.mean, row.summary.interval), _difference(row))[: len(heads)]
        for row in comparison.rows
    )
    places, notes = frozenset(range(1, len(heads))), score_notes(records, comparison)
    return dataclasses.replace(whole, columns=heads, rows=rows, numbers=places, notes=notes)


def _difference(row: Row) -> str:
    """Returns a row's difference to the baseline with its p value as text, such as "-0.500 (p <
    0.001)"; "-" without a difference.
    """
    difference = row.difference
    if difference is None:
        return NONE
    if difference.p is None:
        return signed(difference.mean)
    p = p_value(difference.p)
    return f"{signed(difference.mean)} (p {p if p.startswith('<') else f'= {p}'})"
