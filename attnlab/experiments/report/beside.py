"""Tables beside the main one: all measures of the test split, the validation scores beside those of
the test split, and the uncertainty from the choice of test examples, in addition to seeds: test
sets resampled from the same examples.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnlab.experiments.report.collect import Records
from attnlab.experiments.report.comparison import Comparison, Row, scale, scores, settings
from attnlab.experiments.report.equality import unlike
from attnlab.experiments.report.statistics.family import Family, Summary
from attnlab.experiments.report.statistics.items import Sampled, compare
from attnlab.pages.tables import NONE, Table, interval, mean, number, p_value, signed
from attnlab.records.items import Items, score_of

RESAMPLES = 1000
# limit on the test-set scores of one report, so that fifty variants do not take minutes
_MOST = 400_000
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


def sampled(comparison: Comparison, baseline: str) -> Mapping[str, Sampled]:
    """Returns, by name, a `Sampled` (mean over the seeds that both have, interval, p) of each
    variant's difference to the baseline by resampling the test examples, without variants whose
    examples do not pair or whose numbers are not finite; {} before test scores, or if the baseline
    has no row.

    A variant is left out if the measure has no number per example, or its examples differ from
    the baseline's.
    """
    base = comparison.row(baseline)
    if comparison.basis.split != "test" or base is None:
        return {}
    metric = comparison.basis.metric
    pairs = {
        row.name: pair
        for row in comparison.rows
        if row is not base and (pair := _paired_statistics(row, base, metric)) is not None
    }
    # of both, for both kinds of resamples
    size = sum(4 * len(values) for values, _, _ in pairs.values())
    resamples = min(RESAMPLES, max(100, _MOST // max(1, size)))
    tests = {name: compare(*pair, resamples) for name, pair in pairs.items()}
    return {
        name: test
        for name, test in tests.items()
        if math.isfinite(test.difference) and all(map(math.isfinite, test.interval))
    }


def _paired_statistics(
    row: Row, base: Row, metric: str
) -> tuple[Sequence[Any], Sequence[Any], Callable[[Any, int], float]] | None:
    """Returns three things, or None if a row and the baseline do not pair: the statistics
    [seeds][items,statistics] of the row and those of the baseline, on the seeds that both have, and
    a function of a sum of statistics and a number of examples that returns the score.
    """
    if unlike(row.records, base.records, metric):
        return None
    items, others = (
        {
            record.seed: record.items
            for record in each.records
            if record.items is not None and metric in record.items.rules
        }
        for each in (row, base)
    )
    seeds = [seed for seed in items if seed in others]
    if not seeds:
        return None
    pairs: list[Items] = [*(items[seed] for seed in seeds), *(others[seed] for seed in seeds)]
    if len({(run.rules[metric], run.rows[metric].shape) for run in pairs}) > 1 or not len(pairs[0]):
        return None
    rows = [run.rows[metric] for run in pairs]
    rule = pairs[0].rules[metric]
    return (
        rows[: len(seeds)],
        rows[len(seeds) :],
        lambda total, count: score_of(rule, total.tolist()),
    )


def over_examples(comparison: Comparison, baseline: str) -> Table | None:
    """Returns the table of differences to the baseline with intervals and p over test examples, see
    `sampled`, or None if there are none.
    """
    tests = sampled(comparison, baseline)
    if not tests:
        return None
    rows = tuple(
        (name, f"{test.seeds}", signed(test.difference), interval(test.interval), p_value(test.p))
        for name, test in tests.items()
    )
    first = next(iter(tests.values()))
    note = (
        f"How much the differences to {baseline} depend on which {first.items:,} examples are"
        " in the test set, with the trained models as they are: intervals by the paired"
        f" bootstrap, p by approximate randomisation, {first.resamples:,} resamples each, not"
        " adjusted. The verdict rests on the seeds."
    )
    title = f"{comparison.basis.metric}: the test set"
    columns = ("variant", "seeds", "difference", "95 % interval over examples", "p")
    return Table(title, columns, rows, frozenset((1, 2, 3, 4)), notes=(note,))
