"""The tables of a report, as text in cells: results, contrasts of the claim, what was tuned, all trials."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.experiments.axes import text
from attnlab.experiments.plan import Candidate
from attnlab.experiments.reporting.collect import Record, Records
from attnlab.experiments.reporting.comparison import Basis, Comparison, Difference, Row, settings
from attnlab.experiments.reporting.statistics import Interval, summary
from attnlab.experiments.reporting.verdict import Verdict
from attnlab.progress import clock

NONE = "-"
BASELINE = "baseline"


@dataclasses.dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes:
      title: above it.
      columns: their heads.
      rows: as many cells each.
      numbers: which columns hold numbers, to be set on the right.
      strong, weak: which rows to bring out, and which to draw back (partial ones).
      notes: below it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()
    strong: frozenset[int] = frozenset()
    weak: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

    def only(self, columns: Sequence[str]) -> Table:
        """The same with these columns only."""
        places = [self.columns.index(column) for column in columns]
        rows = tuple(tuple(row[place] for place in places) for row in self.rows)
        numbers = frozenset(new for new, old in enumerate(places) if old in self.numbers)
        return dataclasses.replace(self, columns=tuple(columns), rows=rows, numbers=numbers)


MEANS = ("variant", "n", "mean", "95 % interval")
DIFFERENCES = ("difference", "its 95 % interval", "adjusted p", "effect size")
COSTS = ("parameters", "FLOPs per step", "ms per step", "peak memory", "budget")
COLUMNS = (*MEANS, *DIFFERENCES, *COSTS, "remark")


def results(records: Records, comparison: Comparison) -> Table:
    """Scores and costs, one row a variant (before the choice: a candidate)."""
    basis, base = comparison.basis, records.plan.baseline
    unmatched = records.plan.budget is None
    rows = tuple(_result(row, base, unmatched) for row in comparison.rows)
    table = Table(
        title=f"{basis.metric} on the {'test' if basis.split == 'test' else 'validation'} split, {direction(basis)}",
        columns=COLUMNS,
        rows=rows,
        numbers=frozenset(range(1, len(COLUMNS) - 2)),
        strong=frozenset(place for place, row in enumerate(comparison.rows) if row.best),
        weak=frozenset(place for place, row in enumerate(comparison.rows) if row.missing),
        notes=_notes(records, comparison),
    )
    return table if basis.split == "test" else table.only([column for column in COLUMNS if column not in DIFFERENCES])


def narrow(table: Table, baseline: str) -> list[Table]:
    """`results` cut into tables that fit a terminal: means, differences to the baseline if there are any, costs."""
    parts = [table.only((*MEANS, "remark"))]
    if set(DIFFERENCES) <= set(table.columns):
        differences = table.only(("variant", *DIFFERENCES))
        rows = tuple(row for row in differences.rows if row[1] != BASELINE)
        parts.append(dataclasses.replace(differences, title=f"differences to {baseline}, paired by seed", rows=rows))
    return [*parts, dataclasses.replace(table.only(("variant", *COSTS)), title="costs")]


def direction(basis: Basis) -> str:
    """The direction of a measure in words."""
    return "higher is better" if basis.mode == "max" else "lower is better"


def _result(row: Row, baseline: str, unmatched: bool) -> tuple[str, ...]:
    candidate, found = row.candidate, row.difference
    remarks = ["best"] * row.best + list(row.missing)
    if found is not None and found.n != row.summary.n:
        remarks.append(f"difference over {found.n} seed{'s' * (found.n > 1)}")
    means = (row.name, f"{row.summary.n}", number(row.summary.mean), interval(row.summary.interval))
    taken = (f"{candidate.parameters:,}", scaled(candidate.flops), milliseconds(*row.pace), memory(*row.peak))
    return (*means, *_difference(row, baseline, found), *taken, NONE if unmatched else budget(candidate), "; ".join(remarks))


def _difference(row: Row, baseline: str, found: Difference | None) -> tuple[str, str, str, str]:
    if found is None:
        return (BASELINE if row.candidate.variant == baseline else NONE, NONE, NONE, NONE)
    return signed(found.mean), interval(found.interval), p_value(found.p), NONE if found.effect is None else f"{found.effect:+.2f}"


def _notes(records: Records, comparison: Comparison) -> tuple[str, ...]:
    """What a reader must know to read the numbers."""
    plan = records.plan
    how = {"t": "Student's t", "bootstrap": "bootstrap (BCa, 9999 resamples; too narrow for fewer than about ten seeds)"}[comparison.method]
    notes = [f"Intervals: 95 %, over seeds, by {how}; none for one seed, or where all seeds gave the same value."]
    if comparison.basis.split == "test":
        notes.append(
            f"Differences: to {plan.baseline}, paired by seed; p of the paired t test, adjusted by Holm over the variants; "
            "effect size: Cohen's d_z with Hedges' correction."
        )
        notes += _no_best(comparison) if len(plan.seeds) > 1 else []
    else:
        notes.append("The test split has not been read: these are validation scores, for following the work and not for comparing.")
    return (*notes, *_cost_notes(records))


def _no_best(comparison: Comparison) -> list[str]:
    """Why no variant is marked as the best, where one could have been."""
    if len(comparison.rows) < 2 or any(row.best for row in comparison.rows):
        return []
    if any(row.missing for row in comparison.rows):
        return ["No best variant is marked, because not every row has every seed."]
    return ["No best variant is marked: none is ahead of all others with intervals apart and p below 0.05 (Holm, all pairs)."]


def _cost_notes(records: Records) -> list[str]:
    """Where the costs come from, and whether budgets were held equal."""
    notes = [
        "FLOPs: XLA's count of one training step as lowered for the CPU, before it is optimised, loops counted in full, on a batch of "
        "mean size. ms per step: median, as timed in this sweep beside its other trials. Peak memory: of the process, on the host."
    ]
    plan = records.plan
    if plan.budget is None:
        sizes = [candidate.parameters for candidate in plan.candidates]
        least = min(sizes, default=0)
        wide = max(sizes) / least - 1 if least else 0.0
        return [*notes, "Budgets were not held equal" + (f": parameters differ by up to {100 * wide:.3g} %." if wide >= 0.0005 else ".")]
    held = {"parameters": "parameters", "flops": "FLOPs per step"}[plan.budget["match"]]
    knobs = ", ".join(dict.fromkeys(candidate.budget["knob"] for candidate in plan.candidates if candidate.budget))
    notes.append(f"Budget: {held} held to those of {plan.budget['to'] or plan.baseline} by {knobs}.")
    return [*notes, *dict.fromkeys(_short_of(candidate) for candidate in plan.candidates if candidate.budget and candidate.budget["note"])]


def _short_of(candidate: Candidate) -> str:
    """Why a budget could not be matched."""
    assert candidate.budget is not None
    return f"{candidate.variant}: {candidate.budget['note']}."


def budget(candidate: Candidate) -> str:
    """ "matched within 0.4 %", or how far off it is."""
    if candidate.budget is None:
        return NONE
    off = (candidate.budget["reached"] - candidate.budget["wanted"]) / candidate.budget["wanted"]
    if candidate.budget["matched"]:
        return f"matched within {math.ceil(1e4 * abs(off)) / 100:g} %" if off else "matched"
    return f"NOT MATCHED ({100 * off:+.3g} %)"


def contrasts(verdict: Verdict) -> Table:
    """The claim's contrasts one by one."""
    rows = tuple(
        (one.text, f"{len(one.values)}", number(one.mean), interval(one.interval), one.outcome + (f": {one.why}" if one.why else ""))
        for one in verdict.contrasts
    )
    columns = ("contrast", "n", "mean", f"{100 * verdict.contrasts[0].level:.4g} % interval", "outcome")
    note = "Intervals by Student's t over seeds" + (", widened by Bonferroni over the contrasts." if len(rows) > 1 else ".")
    return Table("What the claim says", columns, rows, frozenset((1, 2, 3)), notes=(note,))


def variants(records: Records) -> Table:
    """What every variant is: its own settings, what the budget solver set, and what all share."""
    plan = records.plan
    rows = []
    for variant, own in plan.variants.items():
        rows.append((variant, _written(own) or "as the base", _solved(records, variant)))
    base = f"All: {plan.config}" + (f" with {_written(plan.base)}." if plan.base else ".")
    table = Table("What is compared", ("variant", "its settings", "set by the budget"), tuple(rows), notes=(base,))
    return table if plan.budget is not None else table.only(table.columns[:2])


def _solved(records: Records, variant: str) -> str:
    """What the budget solver set for the standing candidate of a variant, before the choice for any; "-" for the one to match."""
    plan, standing = records.plan, records.standing(variant)
    if plan.budget is None or variant == (plan.budget["to"] or plan.baseline):
        return NONE
    budgets = [one.budget for one in ([standing] if standing else plan.of(variant)) if one.budget is not None]
    return " or ".join(dict.fromkeys(_written({one["knob"]: one["value"]}) for one in budgets)) or NONE


def _written(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={text(value)}" for key, value in values.items())


def tuning(records: Records, method: str) -> Table | None:
    """What was tried for each variant on the validation split, intervals by `INTERVALS[method]`; None where nothing was tuned."""
    plan, metric = records.plan, records.plan.select["metric"]
    if all(len(plan.of(variant)) < 2 for variant in plan.variants):
        return None
    rows: list[tuple[str, ...]] = []
    strong: set[int] = set()
    for candidate in (candidate for variant in plan.variants for candidate in plan.of(variant)):
        values = [one.scores["valid"][metric] for one in records.of(candidate) if metric in one.scores["valid"]]
        chosen = records.choice is not None and records.choice.candidate(candidate.variant) == candidate.id
        strong |= {len(rows)} if chosen else set()
        found = summary(values, method)
        cells = (f"{found.n}", number(found.mean), interval(found.interval), "chosen" if chosen else "")
        rows.append((candidate.variant, settings(candidate.tuned), *cells))
    tried = {len(plan.of(variant)) for variant in plan.variants}
    note = "Each variant had " + (f"{tried.pop()} settings tried." if len(tried) == 1 else "NOT the same number of settings tried.")
    if plan.search is not None:
        how = settings({name: plan.search[name] for name in ("sampler", "trials", "pruner") if plan.search.get(name)})
        note += f" They were searched for ({how}) with the first seed; the best of each variant was trained with all."
    columns = ("variant", "settings", "n", f"{metric}, validation", "95 % interval", "")
    return Table("Tuning, on the validation split", columns, tuple(rows), frozenset((2, 3, 4)), frozenset(strong), notes=(note,))


def trials(records: Records) -> Table:
    """State of every trial."""
    needed = records.wanted
    rows = tuple(_trial(record, record in needed) for record in records.trials)
    weak = frozenset(place for place, record in enumerate(records.trials) if record.seen.state != "done")
    columns = ("trial", "seed", "state", "step", "attempts", "time", "to first step", "message")
    return Table("Trials", columns, rows, frozenset((1, 3, 4, 5, 6)), weak=weak)


def _trial(record: Record, needed: bool) -> tuple[str, ...]:
    seen, first = record.seen, record.cost.first_step_seconds
    state = seen.word if needed or seen.state != "pending" else "not needed"
    started = NONE if first is None else f"{first:.1f} s"
    time = clock(seen.seconds) if seen.seconds else NONE
    return seen.trial.candidate.id, f"{record.seed}", state, f"{seen.step}/{seen.total}", f"{seen.attempts}", time, started, seen.message


def number(value: float | None) -> str:
    """Four significant digits, from 10,000 on all before the point."""
    if value is None:
        return NONE
    return f"{value:#.4g}".rstrip(".") if abs(value) < 9999.5 else f"{value:,.0f}"


def signed(value: float) -> str:
    """The same with its sign."""
    return f"{'+' * (value >= 0)}{number(value)}"


def interval(value: Interval | None) -> str:
    """ "[low, high]", with as many decimals as give its width three digits, but no end more than five: one more than a mean has."""
    if value is None:
        return NONE
    width, most = value[1] - value[0], max(map(abs, value))
    decimals = max(0, min(2 - math.floor(math.log10(width)), 4 - math.floor(math.log10(most)))) if width > 0 else 4
    return f"[{value[0]:,.{decimals}f}, {value[1]:,.{decimals}f}]"


def p_value(value: float | None) -> str:
    """Three decimals, "< 0.001" below."""
    return NONE if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def scaled(value: float | None) -> str:
    """A count with a decimal prefix, "1.23 G"."""
    if value is None:
        return NONE
    for limit, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.4g} {prefix}"
    return f"{value:.4g}"


def milliseconds(seconds: float | None, together: int = 1) -> str:
    """Milliseconds, with three digits or all before the point, and of how many trials they are a share."""
    if seconds is None:
        return NONE
    shown = f"{1000 * seconds:,.0f}" if seconds >= 0.1 else f"{1000 * seconds:.3g}"
    return f"{shown} (share of a step of {together})" if together > 1 else shown


def memory(size: float | None, together: int = 1) -> str:
    """Bytes in MiB or GiB, and of how many trials where it is more than one."""
    if size is None:
        return NONE
    shown = f"{size / 2**30:.4g} GiB" if size >= 2**30 else f"{size / 2**20:.4g} MiB"
    return f"{shown} (of {together} trials)" if together > 1 else shown
