"""Variants side by side: one row each with its values over seeds, the difference to the baseline, and whether it is the best.

Once the choice is frozen and the test split is scored, rows are variants, each by its chosen candidate, compared on the measure. Before
that they are candidates on the validation split, without tests against each other: what is still being tuned is not compared.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.experiments.axes import text
from attnlab.experiments.plan import Candidate, Plan
from attnlab.experiments.reporting.collect import Record, Records, median_pace
from attnlab.experiments.reporting.statistics import INTERVALS, LEVEL, Interval, Summary, effect_size, holm, paired_p, summary

ALPHA = 0.05


@dataclasses.dataclass(frozen=True)
class Basis:
    """The number that is compared.

    Attributes:
      split: "test", or "valid" as long as there is nothing better.
      metric: its name in the records.
      mode: "max" or "min", whichever is better.
    """

    split: str
    metric: str
    mode: str


@dataclasses.dataclass(frozen=True)
class Difference:
    """A row minus the baseline, paired by seed.

    Attributes:
      n: seeds that both have.
      mean: of the differences.
      interval: of that mean; None for one seed or without spread.
      p: paired t test, Holm-adjusted over all rows; None where there is no interval.
      effect: Cohen's d_z with Hedges' correction; None for fewer than three seeds.
    """

    n: int
    mean: float
    interval: Interval | None
    p: float | None
    effect: float | None


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
      difference: to the baseline; None for the baseline itself, without common seeds, and before the choice.
      best: better than every other row, beyond what the seeds can explain.
    """

    name: str
    candidate: Candidate
    records: tuple[Record, ...]
    values: Mapping[int, float]
    summary: Summary
    missing: tuple[str, ...]
    difference: Difference | None = None
    best: bool = False

    @property
    def pace(self) -> tuple[float | None, int]:
        """Seconds: the median over its trials of the median step; and how many trials shared that step."""
        costs = [record.cost for record in self.records]
        return median_pace([(cost.step_seconds, cost.together) for cost in costs if cost.step_seconds is not None])

    @property
    def peak(self) -> tuple[float | None, int]:
        """Bytes: the most memory of any of its trials; and how many trials shared it."""
        costs = [record.cost for record in self.records]
        return max(((cost.peak_bytes, cost.most_together) for cost in costs if cost.peak_bytes is not None), default=(None, 1))


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All rows and what they show.

    Attributes:
      basis: the number that is compared.
      frozen: the choice is made, so that rows are variants.
      method: how intervals of means are made, a name of `INTERVALS`.
      rows: in the order of the plan.
    """

    basis: Basis
    frozen: bool
    method: str
    rows: tuple[Row, ...]

    def row(self, variant: str) -> Row | None:
        """The row of a variant; None before the choice."""
        return next((row for row in self.rows if self.frozen and row.candidate.variant == variant), None)


def compare(records: Records, method: str = "t") -> Comparison:
    """Every row of a sweep."""
    plan, frozen = records.plan, records.choice is not None
    standing = [one for variant in plan.variants if (one := records.standing(variant)) is not None]
    candidates = standing if frozen else [one for variant in plan.variants for one in plan.of(variant)]
    tested = frozen and any(record.scores["test"] for one in candidates for record in records.of(one))
    basis = _basis(plan, tested)
    rows = [_row(records, one, basis, method, name=one.variant if frozen else label(one)) for one in candidates]
    if tested:
        rows = _against_baseline(rows, plan.baseline, method)
    marked = winner(rows, basis.mode) if tested else None
    return Comparison(basis, frozen, method, tuple(dataclasses.replace(row, best=row is marked) for row in rows))


def label(candidate: Candidate) -> str:
    """A candidate for people: its variant and its tuned settings."""
    return f"{candidate.variant} ({settings(candidate.tuned)})" if candidate.tuned else candidate.variant


def settings(values: Mapping[str, Any]) -> str:
    """Settings by the last part of their names, "peak=0.001, heads=4"."""
    return ", ".join(f"{key.rpartition('.')[2]}={text(value)}" for key, value in values.items())


def winner(rows: Sequence[Row], mode: str) -> Row | None:
    """The row that is better than every other: whole, intervals apart, and each paired t test below `ALPHA` after Holm over all pairs.

    All pairs, because the one with the best mean was picked after looking at all of them.
    """
    if len(rows) < 2 or any(row.missing for row in rows):
        return None
    pairs = list(itertools.combinations(range(len(rows)), 2))
    p_values = dict(zip(pairs, holm([paired_p(paired(rows[i], rows[j])) for i, j in pairs]), strict=True))
    best = (max if mode == "max" else min)(range(len(rows)), key=lambda i: rows[i].summary.mean or 0.0)
    for pair, p in p_values.items():
        if best in pair and (p is None or p >= ALPHA or _overlap(*(rows[i].summary for i in pair))):
            return None
    return rows[best]


def paired(one: Row, other: Row) -> list[float]:
    """Differences one - other over the seeds that both have, in order."""
    return [one.values[seed] - other.values[seed] for seed in one.values if seed in other.values]


def _basis(plan: Plan, tested: bool) -> Basis:
    """The measure on the test split, or else what the choice goes by."""
    return Basis("test", **plan.measure) if tested else Basis("valid", **plan.select)


def _row(records: Records, candidate: Candidate, basis: Basis, method: str, name: str) -> Row:
    """A row by itself."""
    trials = records.of(candidate)
    values = {one.seed: one.scores[basis.split][basis.metric] for one in trials if basis.metric in one.scores[basis.split]}
    missing = tuple(f"seed {one.seed} {_why(one, basis)}" for one in trials if one.seed not in values)
    return Row(name, candidate, trials, values, summary(list(values.values()), method), missing)


def _against_baseline(rows: Sequence[Row], baseline: str, method: str) -> list[Row]:
    """The rows with their differences to the baseline; Holm over all of them."""
    base = next((row for row in rows if row.candidate.variant == baseline), None)
    if base is None:
        return list(rows)
    differences = {row.name: paired(row, base) for row in rows if row is not base}
    adjusted = dict(zip(differences, holm([paired_p(values) for values in differences.values()]), strict=True))
    found = {name: _difference(values, adjusted[name], method) for name, values in differences.items() if values}
    return [dataclasses.replace(row, difference=found.get(row.name)) for row in rows]


def _difference(values: Sequence[float], p: float | None, method: str) -> Difference:
    return Difference(len(values), statistics.fmean(values), INTERVALS[method](values, LEVEL), p, effect_size(values))


def _overlap(one: Summary, other: Summary) -> bool:
    """Whether the intervals touch; where all seeds gave the same value, it is a point."""
    (low, high), (least, most) = (each.interval or (each.mean or 0.0, each.mean or 0.0) for each in (one, other))
    return low <= most and least <= high


def _why(record: Record, basis: Basis) -> str:
    """Why a trial has no number."""
    if record.seen.state != "done":
        return record.seen.word
    return f"has no finite {basis.metric}" if record.scores[basis.split] else "not scored yet"
