"""Variants side by side: one row each with its values over seeds, the difference to the baseline,
and whether it is the best.

Once the choice is frozen and the test split is scored, rows are variants, each by its chosen
candidate, compared on the measure. Before that they are candidates on the validation split, without
tests against each other, since they are still being tuned. The statistics are in
`attnlab.experiments.report.statistics`.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attnlab.experiments.define import is_derived, text
from attnlab.experiments.plan import Candidate
from attnlab.experiments.report.collect import Record, Records, Shown, median_pace
from attnlab.experiments.report.equality import Apart, apart, unlike
from attnlab.experiments.report.looks import ALPHA, level
from attnlab.experiments.report.statistics.family import Difference, Family, Summary
from attnlab.experiments.report.statistics.scale import UNBOUNDED, Scale
from attnlab.experiments.report.trials import absent, value
from attnlab.records.measures import LARGEST


@dataclasses.dataclass(frozen=True)
class Basis:
    """The number that is compared.

    Attributes:
      split: "test", or "valid" before there are test scores.
      metric: its name in the records.
      mode: "max" or "min", whichever is better.
      scale: its bounds, and how many test examples it counts, as far as the records say.
    """

    split: str
    metric: str
    mode: str
    scale: Scale = UNBOUNDED

    @property
    def derived(self) -> bool:
        """Whether it is a derived measure, so that it belongs to no split."""
        return is_derived(self.metric)


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the comparison.

    Attributes:
      name: the variant; before the choice with its tuned settings.
      candidate: what was trained.
      records: its trials, by seed.
      values: seed to number, for the seeds that have one.
      summary: of the values.
      missing: why the other seeds have none, "seed 2 diverged" each.
      outlying: its seeds that lie apart from the others, perhaps because training failed unnoticed.
      difference: to the baseline, by Dunnett's test; None for the baseline itself, without a number
        on either side, and before the choice.
      shared: how many seeds it has in common with the baseline.
      best: significantly better than every other row (Tukey's test of all pairs).
    """

    name: str
    candidate: Candidate
    records: tuple[Record, ...]
    values: Mapping[int, float]
    summary: Summary
    missing: tuple[str, ...]
    outlying: tuple[int, ...] = ()
    difference: Difference | None = None
    shared: int = 0
    best: bool = False

    @property
    def pace(self) -> tuple[float | None, int]:
        """Returns the median over its trials of their median seconds of a step, and how many trials
        shared that step; (None, 1) if not recorded.
        """
        costs = [record.cost for record in self.records]
        paces = [
            (each.step_seconds, each.together) for each in costs if each.step_seconds is not None
        ]
        return median_pace(paces)

    @property
    def peak(self) -> tuple[float | None, int]:
        """Bytes: the most memory of any of its trials; and how many trials shared it."""
        costs = [record.cost for record in self.records if record.cost.peak_bytes is not None]
        return max(((cost.peak_bytes, cost.most_together) for cost in costs), default=(None, 1))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All rows and what they show.

    Attributes:
      basis: the number that is compared.
      frozen: the choice is made, so that rows are variants.
      method: how intervals of means are made: "model" or "bootstrap".
      rows: in the order of the plan.
      family: the statistics, by name, of the rows that were scored on the baseline's test examples;
        tested at `alpha`.
      whole: all rows, for contrasts across test examples.
      alpha: the level of the present look at the test split, see `planned.level`.
      apart: which variants were scored on different test examples.
    """

    basis: Basis
    frozen: bool
    method: str
    rows: tuple[Row, ...]
    family: Family
    whole: Family
    alpha: float = ALPHA
    apart: Apart = dataclasses.field(default_factory=Apart)

    @property
    def records(self) -> list[Record]:
        """The trials of all rows."""
        return [record for row in self.rows for record in row.records]

    @property
    def shown(self) -> dict[int, Shown]:
        """Place of a row to what its first trial shows of the test examples; {} before the choice."""
        rows = enumerate(self.rows) if self.frozen else ()
        return {place: row.records[0].shown for place, row in rows if row.records}

    def row(self, variant: str) -> Row | None:
        """Returns the row of a variant, or None before the choice, or if it has no row."""
        rows = self.rows if self.frozen else ()
        return next((row for row in rows if row.candidate.variant == variant), None)


def compare(records: Records, method: str = "model") -> Comparison:
    """Returns the `Comparison` of a sweep, intervals by `method` ("model" or "bootstrap"): a row
    for each variant (before the choice, each candidate), on the test split with its difference to
    the baseline and a certain best marked, or, before test scores, on validation.
    """
    plan, frozen = records.plan, records.choice is not None
    standing = list(filter(None, map(records.representative, plan.variants)))
    every = (candidate for variant in plan.variants for candidate in plan.of(variant))
    candidates = standing if frozen else list(every)
    runs = [record for candidate in candidates for record in records.of(candidate)]
    tested = frozen and any(run.scores["test"] for run in runs)
    asked, split = (plan.measure, "test") if tested else (plan.select, "valid")
    basis = Basis(split, asked["metric"], asked["mode"])
    rows = []
    for candidate in candidates:
        name = candidate.variant if frozen else label(candidate)
        empty = Row(name, candidate, records.of(candidate), {}, Summary(0, None, None, None), ())
        rows.append(_valued(empty, basis))
    valued = (row for row in rows if tested and row.values)
    base = next((row for row in valued if row.candidate.variant == plan.baseline), None)
    like = [
        row for row in rows if base is None or not unlike(row.records, base.records, basis.metric)
    ]
    basis = _scaled(basis, like)
    alpha, others = level(records), apart(records, basis.metric)
    family = _family(like, basis, alpha)
    whole = _family(rows, _scaled(basis, rows), alpha)
    rows = [_summed(row, family if row in like else whole, method) for row in rows]
    rows = rows if base is None else _against(rows, base, family)
    marked = (
        None if not tested or any(row.missing for row in rows) or others.other else family.best()
    )
    rows = [dataclasses.replace(row, best=row.name == marked) for row in rows]
    return Comparison(basis, frozen, method, tuple(rows), family, whole, alpha, others)


def _scaled(basis: Basis, rows: Sequence[Row]) -> Basis:
    """The measure with what the records of these rows say of it."""
    records = [record for row in rows for record in row.records]
    return dataclasses.replace(basis, scale=scale(records, basis.split, basis.metric))


def _family(rows: Sequence[Row], basis: Basis, alpha: float) -> Family:
    return Family({row.name: row.values for row in rows}, basis.mode, basis.scale, alpha)


def _summed(row: Row, family: Family, method: str) -> Row:
    """Returns the row with its mean, its 95 % interval (at any `alpha`), and its outlying seeds, by
    the model of `family`.
    """
    alone = dataclasses.replace(family, alpha=ALPHA)
    summary = alone.mean(row.name, method)
    return dataclasses.replace(row, summary=summary, outlying=alone.failing.get(row.name, ()))


def measured(comparison: Comparison, metric: str) -> Comparison:
    """Returns `comparison` with the values, means and intervals of its rows replaced by those of
    the derived measure `metric` (less is better), without differences and without a best row.
    """
    basis = Basis(comparison.basis.split, metric, "min")
    plain = (dataclasses.replace(row, difference=None, best=False) for row in comparison.rows)
    rows = [_valued(row, basis) for row in plain]
    family = Family({row.name: row.values for row in rows}, basis.mode, alpha=comparison.alpha)
    rows = [dataclasses.replace(row, summary=family.mean(row.name)) for row in rows]
    return dataclasses.replace(
        comparison, basis=basis, rows=tuple(rows), family=family, whole=family
    )


def label(candidate: Candidate) -> str:
    """A candidate for people: its variant and its tuned settings."""
    tuned = f" ({settings(candidate.tuned)})" if candidate.tuned else ""
    return f"{candidate.variant}{tuned}"


def settings(values: Mapping[str, Any]) -> str:
    """Settings by the last part of their names, "peak=0.001, heads=4"."""
    return ", ".join(f"{key.rpartition('.')[2]}={text(value)}" for key, value in values.items())


def scores(records: Iterable[Record], split: str, metric: str) -> dict[int, float]:
    """Seed to score on a split, for those trials of one candidate that have the score."""
    numbers = {record.seed: record.scores[split].get(metric) for record in records}
    return {seed: number for seed, number in numbers.items() if number is not None}


def scale(records: Iterable[Record], split: str, metric: str) -> Scale:
    """Returns the `Scale` of a measure on a split from the records of those trials that state it:
    its bounds (none unless all state the same) and the smallest of their counts of examples (None
    without both bounds or any count).
    """
    recorded = [record.measures[split] for record in records]
    measures = [named[metric] for named in recorded if metric in named]
    bounds = {(measure.low, measure.high) for measure in measures}
    if len(bounds) != 1:
        return UNBOUNDED
    (low, high), counts = bounds.pop(), [measure.count for measure in measures if measure.count]
    return Scale(low, high, min(counts) if counts and None not in (low, high) else None)


def _valued(row: Row, basis: Basis) -> Row:
    """Returns the row with its values by seed, and the reasons why seeds have none, replaced by
    those for the measure and split of `basis`; the mean and interval are left empty.
    """
    numbers = {record.seed: value(record, basis.split, basis.metric) for record in row.records}
    values = {seed: number for seed, number in numbers.items() if number is not None}
    lacking = (record for record in row.records if record.seed not in values)
    missing = tuple(f"seed {record.seed} {_why(record, basis)}" for record in lacking)
    summary = Summary(len(values), None, None, None)
    return dataclasses.replace(row, values=values, summary=summary, missing=missing)


def _against(rows: Sequence[Row], base: Row, family: Family) -> list[Row]:
    """Returns the rows with their differences to the baseline (None for the baseline and for rows
    that are not in `family`) and the number of seeds that they share with it.
    """
    differences = family.against(base.name)
    shared = {row.name: len(row.values.keys() & base.values.keys()) for row in rows}
    return [
        dataclasses.replace(row, difference=differences.get(row.name), shared=shared[row.name])
        for row in rows
    ]


def _why(record: Record, basis: Basis) -> str:
    """Returns in words why a trial has no value of the measure: its state if it is not done, else
    what a derived measure lacks, that no finite score is on record, or that it is not scored yet.
    """
    if record.seen.state != "done":
        return record.seen.word
    if is_derived(basis.metric):
        return absent(basis.metric)
    lacks = f"has no finite {basis.metric} up to {LARGEST:g}"
    return lacks if record.scores[basis.split] else "not scored yet"
