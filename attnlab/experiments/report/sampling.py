"""Uncertainty from the choice of test examples, in addition to seeds: test sets resampled from the
same examples.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attnlab.experiments.report.comparison import Comparison, Row
from attnlab.experiments.report.equality import unlike
from attnlab.experiments.report.statistics.items import Sampled, compare
from attnlab.pages.tables import Table, interval, p_value, signed
from attnlab.records.items import Items, score_of

RESAMPLES = 1000
# limit on the test-set scores of one report, so that fifty variants do not take minutes
_MOST = 400_000


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
    scores = sum(4 * len(values) for values, _, _ in pairs.values())
    resamples = min(RESAMPLES, max(100, _MOST // max(1, scores)))
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


def table(comparison: Comparison, baseline: str) -> Table | None:
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
