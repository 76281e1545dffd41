"""The tables of a report, as text in cells: results, those of them for a paper, contrasts of the
claim, what is compared, what was tuned, all trials.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.errors import UserError, nearest
from attnlab.experiments.define import several, text
from attnlab.experiments.plan import Candidate
from attnlab.experiments.report.collect import Record, Records
from attnlab.experiments.report.comparison import Basis, Comparison, Row, scale, scores, settings
from attnlab.experiments.report.equality import Differing, differing, other_scale, unlike
from attnlab.experiments.report.notes import cost_notes, score_notes
from attnlab.experiments.report.statistics.family import Difference, Family
from attnlab.experiments.report.verdict import Judged, Verdict, hint
from attnlab.experiments.run import counts
from attnlab.pages.tables import (
    NONE,
    Table,
    interval,
    mean,
    memory,
    milliseconds,
    number,
    p_value,
    scaled,
    signed,
)
from attnlab.progress import clock

BASELINE = "baseline"
MEANS = ("variant", "n", "mean", "95 % interval")
DIFFERENCES = ("difference", "its interval", "adjusted p", "effect size")
COSTS = ("parameters", "FLOPs per step", "transcendentals", "ms per step", "peak memory", "budget")
COLUMNS = (*MEANS, *DIFFERENCES, *COSTS, "remark")


def results(records: Records, comparison: Comparison) -> Table:
    """Returns the main table, one row a variant (before the choice: a candidate): number of seeds,
    mean, interval, difference to the baseline with interval, p and effect size (on the test split
    only), costs, budget and remarks; with notes below.
    """
    basis, base = comparison.basis, records.plan.baseline
    unequal = [setting for setting in differing(records) if setting.kind == "unequal"]
    rows = tuple(_result(row, base, records, unequal, basis.metric) for row in comparison.rows)
    table = Table(
        title=heading(basis),
        columns=COLUMNS,
        rows=rows,
        numbers=frozenset(range(1, len(COLUMNS) - 2)),
        strong=frozenset(place for place, row in enumerate(comparison.rows) if row.best),
        weak=frozenset(place for place, row in enumerate(comparison.rows) if row.missing),
        notes=(*score_notes(records, comparison), *cost_notes(records)),
    )
    counted = any(row.candidate.counted.transcendentals is not None for row in comparison.rows)
    left_out = DIFFERENCES * (basis.split != "test") + ("transcendentals",) * (not counted)
    return table.only([column for column in COLUMNS if column not in left_out])


def narrow(table: Table, baseline: str) -> list[Table]:
    """Cuts the table of `results` into tables that fit a terminal: means, differences to the
    baseline if there are any, and costs.
    """
    parts = [table.only((*MEANS, "remark"))]
    if set(DIFFERENCES) <= set(table.columns):
        differences = table.only(("variant", *DIFFERENCES))
        rows = tuple(row for row in differences.rows if row[1] != BASELINE)
        if rows:  # of one variant there are none
            title = f"differences to {baseline}"
            parts.append(dataclasses.replace(differences, title=title, rows=rows))
    costs = [column for column in COSTS if column in table.columns]
    return [*parts, dataclasses.replace(table.only(("variant", *costs)), title="costs")]


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
    whole = results(records, comparison)
    if columns:
        for name in columns:
            if name not in whole.columns:
                raise UserError(f"--columns: no column {name!r}; {nearest(name, whole.columns)}")
        chosen = whole.only(columns)
        if set(columns) & set(COSTS):
            return chosen
        return dataclasses.replace(chosen, notes=score_notes(records, comparison))
    heads: tuple[str, ...] = ("variant", comparison.basis.metric)
    if comparison.basis.split == "test":
        heads = (*heads, f"difference to {records.plan.baseline}")
    rows = tuple(
        (row.name, mean(row.summary.mean, row.summary.interval), _difference_with_p(row))[
            : len(heads)
        ]
        for row in comparison.rows
    )
    places, notes = frozenset(range(1, len(heads))), score_notes(records, comparison)
    return dataclasses.replace(whole, columns=heads, rows=rows, numbers=places, notes=notes)


def _difference_with_p(row: Row) -> str:
    """Returns a row's difference to the baseline with its p value as text, such as "-0.500 (p <
    0.001)"; without a p value the difference alone, and "-" without a difference.
    """
    if row.difference is None:
        return NONE
    size, p = signed(row.difference.mean), p_value(row.difference.p)
    if row.difference.p is None:
        return size
    return f"{size} (p {p if p.startswith('<') else f'= {p}'})"


def direction(basis: Basis) -> str:
    """The direction of a measure in words."""
    return "higher is better" if basis.mode == "max" else "lower is better"


def heading(basis: Basis) -> str:
    """Returns the title of the main table, which says what is compared: "exact on the test split,
    higher is better".
    """
    where = f"on the {'test' if basis.split == 'test' else 'validation'} split"
    where = "of the trials" if basis.derived else where
    return f"{basis.metric} {where}, {direction(basis)}"


def _result(
    row: Row, baseline: str, records: Records, unequal: Sequence[Differing], metric: str
) -> tuple[str, ...]:
    """Returns the cells of a row of the main table as texts: mean, difference, costs, budget (with
    its values of the settings `unequal` between variants), and remarks, such as what is best,
    missing, or not comparable with the baseline.
    """
    candidate, gap = row.candidate, row.difference
    base = records.representative(baseline)
    remarks = ["best"] * row.best + list(row.missing)
    usual = () if base is None else records.of(base)
    if other_scale(row.records, usual, metric):
        remarks.append("not comparable")
    elif unlike(row.records, usual, metric):
        remarks.append("other test examples")
    if row.outlying:
        remarks.append(
            f"seed{'s' * (len(row.outlying) > 1)} {', '.join(map(str, row.outlying))}"
            f" lie{'s' * (len(row.outlying) == 1)} apart"
        )
    spread = (("mean", row.summary.own), ("difference", gap is not None and gap.own))
    if wider := [name for name, noisy in spread if noisy]:
        remarks.append(f"{' and '.join(wider)} judged by own spread too")
    if gap is not None and row.shared != row.summary.n:
        remarks.append(f"{row.shared} seed{'s' * (row.shared != 1)} in common with {baseline}")
    means = (row.name, f"{row.summary.n}", number(row.summary.mean), interval(row.summary.interval))
    counted = candidate.counted
    least = "at least " if counted.loops else ""  # loops of unknown length are counted once
    work = (
        least + scaled(candidate.flops),
        NONE if counted.transcendentals is None else least + scaled(counted.transcendentals),
    )
    taken = (f"{candidate.parameters:,}", *work, milliseconds(*row.pace), memory(*row.peak))
    held = budget(candidate) + _unequal_to_baseline(candidate.variant, baseline, unequal)
    held = NONE if records.plan.budget is None else held
    return (*means, *_difference(row, baseline, gap), *taken, held, "; ".join(remarks))


def _unequal_to_baseline(variant: str, baseline: str, unequal: Sequence[Differing]) -> str:
    """Returns the names of the settings `unequal` in which a variant differs from the baseline, as
    ", but not training.steps"; "" without any.
    """
    names = [each.name for each in unequal if each.values.get(variant) != each.values.get(baseline)]
    return f", but not {several(names)}" if names else ""


def _difference(row: Row, baseline: str, gap: Difference | None) -> tuple[str, str, str, str]:
    """Returns four texts: a row's difference to the baseline, its interval, p value and effect
    size; without a difference (`gap` None) "baseline" for the baseline itself, else "-", and three
    times "-".
    """
    if gap is None:
        return (BASELINE if row.candidate.variant == baseline else NONE, NONE, NONE, NONE)
    effect = NONE if gap.effect is None else f"{gap.effect:+.2f}"
    return signed(gap.mean), interval(gap.interval), p_value(gap.p), effect


def budget(candidate: Candidate) -> str:
    """Returns in words how near a candidate is to its budget: "matched" if exactly, "matched within
    0.4 %", or "NOT MATCHED (+3 %)"; "-" if it has none.
    """
    if candidate.budget is None:
        return NONE
    off = candidate.percent_off
    if candidate.budget["matched"]:
        return f"matched within {abs(off):g} %" if off else "matched"
    return f"NOT MATCHED ({off:+g} %)"


def contrasts(verdict: Verdict | None) -> Table | None:
    """Returns a table of the claim's contrasts, one row each: seeds, mean, bounds and outcome, or
    None without a claim.
    """
    if verdict is None:
        return None
    rows = tuple(_contrast(contrast) for contrast in verdict.contrasts)
    lower, upper = (
        f"{100 * (1 - alpha):.4g} %" for alpha in (verdict.alpha, verdict.alpha / len(rows))
    )
    columns = ("contrast", "n", "mean", f"lower {lower} bound", f"upper {upper} bound", "outcome")
    notes = [
        "Supported: the lower bound is above what is claimed. Not supported: the upper bound is"
        " below."
    ]
    if len(rows) > 1:
        level = f"{verdict.alpha:.3g}"
        notes.append(
            f"All contrasts must hold, so each is tested at {level}; that one does not hold is said"
            f" at {level} over their number."
        )
    return Table("What the claim says", columns, rows, frozenset((1, 2, 3, 4)), notes=tuple(notes))


def _contrast(judged: Judged) -> tuple[str, ...]:
    """Returns the cells of a contrast's row as texts: its formula, seeds, mean, lower and upper
    bound, and outcome with the reason.
    """
    decision = judged.found
    numbers = (None,) * 3 if decision is None else (decision.mean, decision.lower, decision.upper)
    rests = f" (by its {decision.rests} bound)" if decision is not None and decision.rests else ""
    outcome = judged.outcome + (f": {judged.why}" if judged.why else rests)
    outcome = f"{outcome}; {hint(judged)}" if judged.power else outcome
    return judged.text, f"{judged.seeds}", *map(number, numbers), outcome


def variants(records: Records) -> Table:
    """Returns a table of each variant's settings and, if there is a budget, the values that its
    solver set, with notes on what all share and what differs outside the system.
    """
    plan = records.plan
    rows = tuple(
        (variant, _written(overrides) or "as the base", _solved(records, variant))
        for variant, overrides in plan.variants.items()
    )
    base = f"All: {plan.config}" + (f" with {_written(plan.base)}." if plan.base else ".")
    columns = ("variant", "its settings", "set by the budget")
    table = Table("What is compared", columns, rows, notes=(base, *_differing(records)))
    return table if plan.budget is not None else table.only(table.columns[:2])


def _differing(records: Records) -> tuple[str, ...]:
    """Returns a sentence for each reason why settings outside the system differ (compared, tuned,
    budget, not held equal), with those settings.
    """
    why = {"compared": "Differ as compared", "tuned": "Differ as tuned"}
    why |= {"budget": "Set by the budget", "unequal": "Not held equal"}
    settings = differing(records)
    return tuple(
        f"{reason}: {'; '.join(sentences)}."
        for kind, reason in why.items()
        if (sentences := [each.sentence for each in settings if each.kind == kind])
    )


def _solved(records: Records, variant: str) -> str:
    """Returns as text what the budget solver set for the chosen candidate of a variant (before the
    choice, for all its candidates); "-" for the variant to match, or without a budget.
    """
    plan, standing = records.plan, records.representative(variant)
    if plan.budget is None or variant == (plan.budget["to"] or plan.baseline):
        return NONE
    candidates = [standing] if standing else plan.of(variant)
    budgets = [candidate.budget for candidate in candidates if candidate.budget is not None]
    values = dict.fromkeys(_written({met["knob"]: met["value"]}) for met in budgets)
    return " or ".join(values) or NONE


def _written(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={text(value)}" for key, value in values.items())


def tried(records: Records, method: str) -> Table | None:
    """Returns a table of all tuned settings of each variant with mean and interval on the
    validation split, the chosen ones marked, or None if nothing was tuned.
    """
    plan, metric = records.plan, records.plan.select["metric"]
    if all(len(plan.of(variant)) < 2 for variant in plan.variants):
        return None
    values = {}
    for candidate in plan.candidates:
        runs = [run for run in records.of(candidate) if run.seed in records.tuning_seeds]
        values[candidate.id] = scores(runs, "valid", metric)
    family = Family(values, plan.select["mode"], scale(records.trials, "valid", metric))
    rows: list[tuple[str, ...]] = []
    strong: set[int] = set()
    for candidate in (candidate for variant in plan.variants for candidate in plan.of(variant)):
        chosen = records.chosen(candidate)
        strong |= {len(rows)} if chosen else set()
        summary = family.mean(candidate.id, method)
        means = (f"{summary.n}", number(summary.mean), interval(summary.interval))
        what = (candidate.variant, settings(candidate.tuned))
        rows.append((*what, *means, "chosen" * chosen))
    columns = ("variant", "settings", "n", f"{metric}, validation", "95 % interval", "")
    notes = (_how_many(records), *_lost_settings(records))
    title, numbers = "Tuning, on the validation split", frozenset((2, 3, 4))
    return Table(title, columns, tuple(rows), numbers, frozenset(strong), notes=notes)


def _how_many(records: Records) -> str:
    """Returns a note on how many settings were tried for each variant and, for a search, its
    sampler and pruner and what became of them.
    """
    plan = records.plan
    tried = {len(plan.of(variant)) for variant in plan.variants}
    number = f"{tried.pop()}" if len(tried) == 1 else "NOT the same number of"
    note = f"Each variant had {number} settings tried."
    if plan.search is not None:
        named = {name: plan.search.get(name) for name in ("sampler", "trials", "pruner")}
        options = settings({name: value for name, value in named.items() if value})
        note += (
            f" They were searched for ({options}) with the first seed; the best of each variant was"
            " trained with all. Of them, "
        )
        note += "; ".join(_searched(records, variant) for variant in plan.variants) + "."
    return note


def _lost_settings(records: Records) -> list[str]:
    """Returns a note for each variant that was chosen without some of its trials, which had failed
    or were stopped.
    """
    notes = []
    for variant, entry in records.choice.chosen.items() if records.choice is not None else ():
        if accepted := entry.get("accepted"):
            without = ", ".join(f"{name} ({why})" for name, why in accepted.items())
            trained = f"{entry.get('trained')} of {entry.get('settings')} settings trained"
            notes.append(f"{variant}: {trained}; chosen without {without}.")
    return notes


def _searched(records: Records, variant: str) -> str:
    """Returns in words how many trials of a variant's search (those with the first seed) are in
    which state, and the sum of their steps: "additive: 4 done, 12 pruned, 3,400 steps".
    """
    of_variant = [run for run in records.trials if run.candidate.variant == variant]
    statuses = [run.seen for run in of_variant if run.seed == records.plan.seeds[0]]
    states = [f"{number} {state}" for state, number in counts(statuses).items()]
    return f"{variant}: {', '.join([*states, f'{sum(seen.step for seen in statuses):,} steps'])}"


def trials(records: Records) -> Table:
    """Returns a table with the seed, state, step, attempts, times and message of every trial."""
    needed = records.wanted
    rows = tuple(_trial(record, record in needed) for record in records.trials)
    states = [record.seen.state for record in records.trials]
    weak = frozenset(place for place, state in enumerate(states) if state != "done")
    columns = ("trial", "seed", "state", "step", "attempts", "time", "to first step", "message")
    return Table("Trials", columns, rows, frozenset((1, 3, 4, 5, 6)), weak=weak)


def _trial(record: Record, needed: bool) -> tuple[str, ...]:
    """Returns the cells of a trial's row as texts; one that has not begun and is not `needed` has
    the state "not needed".
    """
    seen, first = record.seen, record.cost.first_step_seconds
    state = seen.word if needed or seen.state != "pending" else "not needed"
    started = NONE if first is None else f"{first:.1f} s"
    time = clock(seen.seconds) if seen.seconds else NONE
    reached = (f"{seen.step}/{seen.total}", f"{seen.attempts}")
    return (record.candidate.id, f"{record.seed}", state, *reached, time, started, seen.message)
