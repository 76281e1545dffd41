"""Tables beside the main one: all measures of the test split, and the validation scores beside
those of the test split.
"""

import statistics

from attnlab.experiments.report.collect import Records
from attnlab.experiments.report.comparison import Comparison, Row, scale, scores, settings
from attnlab.experiments.report.statistics.family import Family, Summary
from attnlab.pages.tables import NONE, Table, mean, number, signed

# Numbers of `results.json` that are no scores: how a score was computed, and the sizes of a split.
BOOKKEEPING = (
    "step",
    "parameters",
    "decoding_seconds",
    "sentences",
    "examples",
    "words",
    "texts",
    "tokens",
)


def measures(comparison: Comparison) -> Table | None:
    """Returns a table with the mean and interval of every measure on the test split, one row a
    variant, or None if the test split is not scored or there are fewer than two measures.
    """
    basis = comparison.basis
    if basis.split != "test":
        return None
    recorded = (name for record in comparison.records for name in record.scores["test"])
    others = (name for name in recorded if name not in BOOKKEEPING)
    names = list(dict.fromkeys((*([] if basis.derived else [basis.metric]), *others)))
    if len(names) < 2:
        return None
    columns = [_means(comparison, name) for name in names]
    rows = [
        (row.name, *(mean(column[row.name].mean, column[row.name].interval) for column in columns))
        for row in comparison.rows
    ]
    best = frozenset(place for place, row in enumerate(comparison.rows) if row.best)
    each = "Mean over seeds and its 95 % interval, each by itself."
    corrected = f"nothing was corrected for looking at {len(names)} measures."
    note = f"{each} Only {basis.metric} is tested: {corrected}"
    numbers = frozenset(range(1, len(names) + 1))
    title, heads = f"All {len(names)} measures on the test split", ("variant", *names)
    return Table(title, heads, tuple(rows), numbers, strong=best, notes=(note,))


def validation(records: Records, comparison: Comparison) -> Table | None:
    """Returns a table with each variant's chosen settings and its mean scores on the validation and
    the test split, by the selection and the main measure, with the difference test minus
    validation, or None before test scores; empty columns are left out.
    """
    if comparison.basis.split != "test":
        return None
    select, measure = records.plan.select["metric"], records.plan.measure["metric"]
    names = dict.fromkeys((select, measure))
    rows = []
    for row in comparison.rows:
        cells = (cell for name in names for cell in _beside(row, name))
        rows.append((row.name, settings(row.candidate.tuned) or NONE, *cells))
    heads = (
        head
        for name in names
        for head in (f"{name}, validation", f"{name}, test", "test - validation")
    )
    better = "highest" if records.plan.select["mode"] == "max" else "lowest"
    notes = (
        f"Means over seeds. Settings were chosen by the {better} {select} on the validation split.",
        (
            "A test score much worse than that of validation speaks for settings, or a stopping"
            " step, that fit the validation split by chance."
        ),
    )
    columns = ("variant", "chosen settings", *heads)
    numbers = frozenset(range(2, len(columns)))
    made = Table("Validation beside test", columns, tuple(rows), numbers, notes=notes)
    filled = [place for place in range(len(columns)) if not {row[place] for row in rows} <= {NONE}]
    return made.at([0, *(place for place in filled if place)])


def _means(comparison: Comparison, name: str) -> dict[str, Summary]:
    """Returns a mapping from the name of each row to the `Summary` (mean, interval, ...) of a
    measure on the test split, by the model of all rows.
    """
    values = {row.name: scores(row.records, "test", name) for row in comparison.rows}
    family = Family(values, scale=scale(comparison.records, "test", name))
    return {row.name: family.mean(row.name, comparison.method) for row in comparison.rows}


def _beside(row: Row, name: str) -> tuple[str, str, str]:
    """Returns as texts a row's mean of a measure on validation, on the test split, and the mean
    difference (test minus validation) over the seeds that have both.
    """
    valid, test = (scores(row.records, split, name) for split in ("valid", "test"))
    gaps = [test[seed] - valid[seed] for seed in valid if seed in test]
    before, after = (statistics.fmean(each.values()) if each else None for each in (valid, test))
    return number(before), number(after), signed(statistics.fmean(gaps)) if gaps else NONE
