"""Two sweeps side by side: the variants that both have, the difference between them, and what else
differs.

A difference is second minus first. It is paired by seed if both sweeps have the same seeds and every
pair of trials was scored on the same data, whatever the values are. Otherwise the two are independent samples. `gap` has the statistics.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from attnlab import progress
from attnlab.config import tree
from attnlab.errors import UserError
from attnlab.experiments.define import grouped, text
from attnlab.experiments.plan import Plan
from attnlab.experiments.report.collect import Records, collect
from attnlab.experiments.report.comparison import Basis, Comparison, Row, compare
from attnlab.experiments.report.environment import environment
from attnlab.experiments.report.equality import other_scale
from attnlab.experiments.report.statistics.family import Family
from attnlab.experiments.report.statistics.scale import UNBOUNDED, Interval, Scale
from attnlab.experiments.report.tables import heading
from attnlab.experiments.report.trials import settings
from attnlab.pages.tables import NONE, Table, interval, markdown, mean, signed
from attnlab.records.files import csv_text, write_atomic

BY_SEED, APART = "by seed", "as two samples"
_NAMES = ("A", "B")


@dataclasses.dataclass(frozen=True)
class Gap:
    """Second minus first.

    Attributes:
      mean: of the difference.
      interval: 95 %; None with one seed, or without spread.
      method: `BY_SEED` or `APART`.
    """

    mean: float
    interval: Interval | None
    method: str


@dataclasses.dataclass(frozen=True)
class Pair:
    """A line of the table.

    Attributes:
      name: of the variant; "a = b" if the second sweep has the same settings under another name.
      first, second: its rows; None if a sweep has no such variant.
      gap: None unless both have values.
      remark: why it is not paired, or what is missing.
    """

    name: str
    first: Row | None
    second: Row | None
    gap: Gap | None
    remark: str


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two sweeps."""

    directory: Path
    records: Records
    comparison: Comparison


@dataclasses.dataclass(frozen=True)
class Across:
    """Two sweeps and their variants, those of the first in its order, then what only the second
    has.
    """

    first: Side
    second: Side
    pairs: tuple[Pair, ...]


def across(first: Path, second: Path) -> Across:
    """Reads the folders of two sweeps and returns an `Across`: both sweeps, and a `Pair` with the
    difference for each variant, matched by name or settings or alone in one sweep; raises UserError
    if they cannot be compared.

    Raises:
      UserError: a folder without a sweep, a damaged record, different measures, or a sweep without
        test scores.
    """
    a, b = (Side(path, records := collect(path), compare(records)) for path in (first, second))
    _check_same_measure(a, b)
    matched = _matched(a.comparison.rows, b.comparison.rows)
    scale = _common(*(side.comparison.basis.scale for side in (a, b)))
    return Across(a, b, tuple(_pair(*rows, a.comparison.basis, scale) for rows in matched))


def _common(first: Scale, second: Scale) -> Scale:
    """Returns the `Scale` of a measure in two sweeps: that of the first if both have the same
    bounds, with the smaller of the two counts of examples (None unless both have one); else a scale
    without bounds and count.
    """
    if (first.low, first.high) != (second.low, second.high):
        return UNBOUNDED
    counts = [scale.count for scale in (first, second) if scale.count is not None]
    return dataclasses.replace(first, count=min(counts) if len(counts) == 2 else None)


def gap(
    first: Mapping[int, float], second: Mapping[int, float], paired: bool, scale: Scale = UNBOUNDED
) -> Gap:
    """Returns the `Gap` of two variants' values by seed: the difference of means (second minus
    first), its 95 % interval by the model of both, and whether the model paired them by seed, which
    it may only if `paired`; neither may be empty.
    """
    apart = second if paired else {-1 - seed: value for seed, value in second.items()}
    family = Family({"first": first, "second": apart}, scale=scale)
    (delta,) = family.against("first").values()
    return Gap(delta.mean, delta.alone, BY_SEED if family.model.kind == "blocked" else APART)


def table(sweeps: Across) -> Table:
    """Returns the comparison of two sweeps as a `Table`, one row for each pair of variants: both
    means with intervals, the difference second minus first with its interval, how it was computed,
    and a remark.
    """
    columns = ("variant", *_NAMES, "B - A", "its 95 % interval", "compared", "remark")
    rows = tuple(
        (pair.name, _mean(pair.first), _mean(pair.second), *_gap(pair.gap), pair.remark)
        for pair in sweeps.pairs
    )
    sides = zip(_NAMES, (sweeps.first, sweeps.second), strict=True)
    notes = (
        *(f"{name}: {side.directory} ({side.records.plan.name})." for name, side in sides),
        (
            "Means with 95 % intervals over seeds (how many). Differences: by the model of both"
            " (see docs/report.md), by seed where seeds and test data are the same; each at 95 % by"
            " itself."
        ),
    )
    numbers = frozenset((1, 2, 3, 4))
    return Table(heading(sweeps.first.comparison.basis), columns, rows, numbers, notes=notes)


def differing(sweeps: Across) -> Table:
    """Returns a table of what differs between two sweeps besides the scores: facts of their plans,
    of machines and data, and settings of variants that both have.
    """
    sides = (sweeps.first.records, sweeps.second.records)
    a, b = ({**_plan_settings(records.plan), **_facts(records)} for records in sides)
    facts = tree.differing(a, b, text=str, absent="absent")
    rows = [(name, *values, "") for name, values in facts.items()] + _settings(sweeps)
    notes = () if rows else ("Nothing on record differs but the numbers.",)
    return Table("What differs between the two", ("", *_NAMES, "of"), tuple(rows), notes=notes)


def as_csv(sweeps: Across) -> str:
    """Returns the means, intervals, numbers of seeds and differences of two sweeps as CSV, one line
    for each pair of variants, with how it was compared and the remark; no number is rounded, a cell
    is empty where there is no number.
    """
    figures = ("n", "mean", "low", "high")
    sides = [f"{side} {figure}" for side in ("first", "second") for figure in figures]
    gap = ("difference", "difference low", "difference high")
    rows = [["variant", *sides, *gap, "compared", "remark"]]
    for pair in sweeps.pairs:
        numbers: list[Any] = [*_numbers(pair.first), *_numbers(pair.second)]
        numbers += [pair.gap.mean, *(pair.gap.interval or (None, None))] if pair.gap else [None] * 3
        shown = ["" if value is None else repr(value) for value in numbers]
        rows.append([pair.name, *shown, pair.gap.method if pair.gap else "", pair.remark])
    return csv_text(rows)


def _check_same_measure(first: Side, second: Side) -> None:
    """Checks that two sweeps have the same measure and are compared by the same score of the same
    split; raises UserError otherwise.
    """
    measures = [side.records.plan.measure for side in (first, second)]
    if measures[0] != measures[1]:
        this, that = (f"{measure['metric']!r} ({measure['mode']})" for measure in measures)
        raise UserError(
            f"{first.directory} has the measure {this}, {second.directory} {that}; take two sweeps"
            " with the same measure"
        )
    basis, other = (
        dataclasses.replace(side.comparison.basis, scale=UNBOUNDED) for side in (first, second)
    )
    if basis != other:
        late = (first if basis.split != "test" else second).directory
        why = f"{late} is not scored on the test split yet; let its sweep come to its end first"
        if basis.split == other.split == "valid":
            both = f"{first.directory} and {second.directory}"
            why = f"{both} are not scored on the test split yet, and select by other scores"
        raise UserError(why)


def _matched(
    first: Sequence[Row], second: Sequence[Row]
) -> Iterator[tuple[Row | None, Row | None]]:
    """Yields, for each row of `first`, the pair with the row of `second` that has the same name,
    else the same settings, else None; then (None, row) for the remaining rows of `second`.
    """
    named = {row.name: row for row in second}
    names = {row.name for row in first}
    left = [row for row in second if row.name not in names]
    for row in first:
        like = named.get(row.name) or next(
            (other for other in left if settings(other.candidate) == settings(row.candidate)), None
        )
        left = [other for other in left if other is not like]
        yield row, like
    yield from ((None, row) for row in left)


def _pair(first: Row | None, second: Row | None, basis: Basis, scale: Scale) -> Pair:
    """Returns the `Pair` (a line of the table) of two rows, of which one may be None, with their
    difference (None if a row is missing or has no values, or the scales differ) and the reasons in
    its remark.
    """
    if first is None or second is None:
        name, only = (first.name, "A") if first else (second.name if second else "", "B")
        return Pair(name, first, second, None, f"only in {only}")
    name = first.name if first.name == second.name else f"{first.name} = {second.name}"
    why = _unpaired(first, second, basis.split)
    remarks = [f"not paired: {why}"] if why else []
    for side, row in zip(_NAMES, (first, second), strict=True):
        remarks += (f"{side}: {reason}" for reason in row.missing)
    if apart := other_scale(first.records, second.records, basis.metric):
        remarks = [f"not compared: {apart}"]
    seen = not apart and first.values and second.values
    difference = gap(first.values, second.values, not why, scale) if seen else None
    return Pair(name, first, second, difference, "; ".join(remarks))


def _unpaired(first: Row, second: Row, split: str) -> str:
    """Returns why the trials of two rows cannot be paired by seed (other seeds, other data, or data
    not on record); "" if they can.
    """
    if set(first.values) != set(second.values):
        return "other seeds"
    data = [
        {record.seed: record.data.get(split) for record in row.records} for row in (first, second)
    ]
    read = [(data[0][seed], data[1][seed]) for seed in first.values]
    if any(a is not None and b is not None and a != b for a, b in read):
        return f"another {split} split"
    unknown = any(None in pair for pair in read)
    return f"what was read of the {split} split is not on record" * unknown


def _mean(row: Row | None) -> str:
    """Returns a row's mean, interval and number of seeds as text, "0.925 [0.904, 0.946] (4)"; "-"
    without a mean.
    """
    if row is None or row.summary.mean is None:
        return NONE
    summary = row.summary
    return f"{mean(summary.mean, summary.interval)} ({summary.n})"


def _gap(gap: Gap | None) -> tuple[str, str, str]:
    """A difference, its interval and how it was made."""
    return (NONE,) * 3 if gap is None else (signed(gap.mean), interval(gap.interval), gap.method)


def _numbers(row: Row | None) -> list[Any]:
    if row is None:
        return [None] * 4
    return [row.summary.n, row.summary.mean, *(row.summary.interval or (None, None))]


def _plan_settings(plan: Plan) -> dict[str, str]:
    """Returns the settings of a plan other than its variants as texts by name: config, seeds,
    baseline, selection metric, numbers of settings tried, budget.
    """
    budget = "none" if plan.budget is None else f"{plan.budget['match']} by {plan.budget['knob']}"
    return {
        "config": plan.config,
        "seeds": ", ".join(map(str, plan.seeds)),
        "baseline": plan.baseline,
        "chosen by": f"{plan.select['metric']} ({plan.select['mode']})",
        "settings tried": ", ".join(
            dict.fromkeys(str(len(plan.of(variant))) for variant in plan.variants)
        ),
        "budget": budget,
    }


def _facts(records: Records) -> dict[str, str]:
    """Returns, as texts by name, facts on the environment of the trials (versions, devices) and the
    first digits of the digests of their data; values that differ within the sweep are all listed.
    """
    machines = environment(records.trials)
    differing = {name: "; ".join(values) for name, values in machines.differing.items()}
    read = (pair for record in records.trials for pair in record.data.items())
    digests = grouped(dict.fromkeys((f"{split} data", digest[:12]) for split, digest in read))
    data = {name: "; ".join(each) for name, each in digests.items()}
    return {**machines.shared, **differing, **data}


def _settings(sweeps: Across) -> list[tuple[str, ...]]:
    """Returns a tuple (name, first value, second value, variants) for each difference between the
    settings of two sweeps, in the variants that both have; variants with the same difference share
    one.
    """
    both = [
        (pair.name, pair.first.candidate, pair.second.candidate)
        for pair in sweeps.pairs
        if pair.first and pair.second
    ]
    changes: dict[tuple[str, ...], list[str]] = {}
    for name, left, right in both:
        for key, values in tree.differing(settings(left), settings(right), text=text).items():
            changes.setdefault((key, *values), []).append(name)
    return [
        (*change, "all variants" if len(names) == len(both) > 1 else ", ".join(names))
        for change, names in changes.items()
    ]


def write_across(
    first: Path, second: Path, file: Path | None = None, stream: TextIO | None = None
) -> Across:
    """Compares two sweeps, prints two tables (the scores; what else differs) to `stream` (stdout by
    default), writes both as Markdown to `file`, or only the first as CSV if its name ends in ".csv"
    (None: writes no file), and returns the comparison.

    Raises:
      UserError: see `across`; a full disk.
    """
    sweeps = across(first, second)
    tables = [table(sweeps), differing(sweeps)]
    if file is not None:
        text = as_csv(sweeps) if file.suffix == ".csv" else "\n".join(map(markdown, tables))
        write_atomic(file, text)
    for part in tables:
        progress.table(part.title, part.columns, part.rows, stream)
        print(*part.notes, "", sep="\n", file=stream)
    return sweeps
