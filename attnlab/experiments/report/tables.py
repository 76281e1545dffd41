"""The tables of a report, as text in cells: results, contrasts of the claim, what was tuned, all
trials.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.experiments.define import is_derived, is_timed, text
from attnlab.experiments.plan import Candidate
from attnlab.experiments.report.collect import Record, Records
from attnlab.experiments.report.comparison import Basis, Comparison, Row, scale, settings
from attnlab.experiments.report.derived import side_by_side
from attnlab.experiments.report.equality import Differing, differing, other_test_data, several
from attnlab.experiments.report.statistics import CHANCE, Difference, Family
from attnlab.experiments.report.verdict import Judged, Verdict, hint
from attnlab.experiments.report.wide import asked
from attnlab.experiments.run import counts
from attnlab.pages.tables import (
    NONE,
    Table,
    interval,
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
    """Scores and costs, one row a variant (before the choice: a candidate)."""
    basis, base = comparison.basis, records.plan.baseline
    unequal = [one for one in differing(records) if one.kind == "unequal"]
    rows = tuple(_result(row, base, records, unequal) for row in comparison.rows)
    table = Table(
        title=heading(basis),
        columns=COLUMNS,
        rows=rows,
        numbers=frozenset(range(1, len(COLUMNS) - 2)),
        strong=frozenset(place for place, row in enumerate(comparison.rows) if row.best),
        weak=frozenset(place for place, row in enumerate(comparison.rows) if row.missing),
        notes=(*score_notes(records, comparison), *_cost_notes(records)),
    )
    counted = any(row.candidate.counted.transcendentals is not None for row in comparison.rows)
    left_out = {
        *(() if basis.split == "test" else DIFFERENCES),
        *(() if counted else ("transcendentals",)),
    }
    return table.only([column for column in COLUMNS if column not in left_out])


def narrow(table: Table, baseline: str) -> list[Table]:
    """`results` cut into tables that fit a terminal: means, differences to the baseline if there
    are any, costs.
    """
    parts = [table.only((*MEANS, "remark"))]
    if set(DIFFERENCES) <= set(table.columns):
        differences = table.only(("variant", *DIFFERENCES))
        rows = tuple(row for row in differences.rows if row[1] != BASELINE)
        if rows:  # of one variant there are none
            parts.append(
                dataclasses.replace(differences, title=f"differences to {baseline}", rows=rows)
            )
    costs = [column for column in COSTS if column in table.columns]
    return [*parts, dataclasses.replace(table.only(("variant", *costs)), title="costs")]


def direction(basis: Basis) -> str:
    """The direction of a measure in words."""
    return "higher is better" if basis.mode == "max" else "lower is better"


def heading(basis: Basis) -> str:
    """What is compared: "exact on the test split, higher is better"."""
    where = f"on the {'test' if basis.split == 'test' else 'validation'} split"
    return (
        f"{basis.metric} {'of the trials' if is_derived(basis.metric) else where},"
        f" {direction(basis)}"
    )


def _result(
    row: Row, baseline: str, records: Records, unequal: Sequence[Differing]
) -> tuple[str, ...]:
    candidate, found = row.candidate, row.difference
    base = records.standing(baseline)
    remarks = ["best"] * row.best + list(row.missing)
    if base is not None and other_test_data(row.records, records.of(base)):
        remarks.append("other test examples")
    if row.outlying:
        remarks.append(
            f"seed{'s' * (len(row.outlying) > 1)} {', '.join(map(str, row.outlying))}"
            f" lie{'s' * (len(row.outlying) == 1)} apart"
        )
    if found is not None and row.shared != row.summary.n:
        remarks.append(f"{row.shared} seed{'s' * (row.shared != 1)} in common with {baseline}")
    means = (row.name, f"{row.summary.n}", number(row.summary.mean), interval(row.summary.interval))
    counted = candidate.counted
    least = "at least " if counted.loops else ""  # loops of unknown length are counted once
    work = (
        least + scaled(candidate.flops),
        NONE if counted.transcendentals is None else least + scaled(counted.transcendentals),
    )
    taken = (f"{candidate.parameters:,}", *work, milliseconds(*row.pace), memory(*row.peak))
    held = (
        NONE
        if records.plan.budget is None
        else budget(candidate) + _but(candidate.variant, baseline, unequal)
    )
    return (*means, *_difference(row, baseline, found), *taken, held, "; ".join(remarks))


def _but(variant: str, baseline: str, unequal: Sequence[Differing]) -> str:
    """The settings in which a variant differs from the baseline though they are not what is
    compared, ", but not training.steps".
    """
    names = [one.name for one in unequal if one.values.get(variant) != one.values.get(baseline)]
    return f", but not {several(names)}" if names else ""


def _difference(row: Row, baseline: str, found: Difference | None) -> tuple[str, str, str, str]:
    if found is None:
        return (BASELINE if row.candidate.variant == baseline else NONE, NONE, NONE, NONE)
    return (
        signed(found.mean),
        interval(found.interval),
        p_value(found.p),
        NONE if found.effect is None else f"{found.effect:+.2f}",
    )


def score_notes(records: Records, comparison: Comparison) -> tuple[str, ...]:
    """What a reader must know to read means and differences."""
    plan = records.plan
    notes = [f"Intervals: 95 %, over seeds, {_how(comparison)}"]
    if comparison.basis.split == "test":
        notes.append(
            f"Differences: to {plan.baseline}, by Dunnett's test: its intervals hold together, at"
            f" {100 * (1 - comparison.alpha):.4g} %, and one that leaves out 0 is one with an"
            f" adjusted p below {comparison.alpha:.3g}. Effect size: Hedges' g, in standard"
            " deviations of one run."
        )
        notes += _no_best(comparison) if len(plan.seeds) > 1 else []
        notes += _could_find(comparison, plan.baseline)
    else:
        notes.append(
            "The test split has not been read: these are validation scores, for following the work"
            " and not for comparing."
        )
    return (*notes, *_time_notes(records, comparison))


def _time_notes(records: Records, comparison: Comparison) -> list[str]:
    """What else the machine did, where the answer rests on times."""
    timed = [
        name
        for name in dict.fromkeys((comparison.basis.metric, *asked(records.plan)))
        if is_timed(name)
    ]
    if not timed:
        return []
    most = side_by_side(records.trials)
    if most < 2:
        return [
            f"Times ({', '.join(timed)}): the trials of this sweep ran one at a time on their"
            " machine."
        ]
    return [
        f"Times ({', '.join(timed)}) are noisy: up to {most} trials of this sweep were at work side"
        " by side on one machine and slowed one another. To compare times, run the sweep with"
        " --slots=1 on a machine that does nothing else."
    ]


def _how(comparison: Comparison) -> str:
    """How the intervals of means were made."""
    if comparison.method == "bootstrap":
        return "each by bootstrap (BCa, 9999 resamples; too narrow for fewer than about ten seeds)."
    one = (
        "one spread, in units of that of drawing the test examples,"
        if comparison.basis.scale.count
        else "one variance"
    )
    kind = {
        "pooled": f"with {one} for all variants",
        "separate": "with a variance for each variant, for they differ by more than chance",
        "blocked": (
            f"with {one} for all variants, and the seeds taken out as a block, for they explain"
            " much"
        ),
    }[comparison.family.model.kind]
    scale = comparison.basis.scale
    inside = " They stay within the bounds of the measure." if scale.bounded else ""
    counted = (
        f" It is a share of {scale.count:,}: no variance is smaller than that of drawing so many."
        if scale.count
        else ""
    )
    return f"{kind}; none where nothing gives a variance.{inside}{counted}"


def _no_best(comparison: Comparison) -> list[str]:
    """Why no variant is marked as the best, where one could have been."""
    if len(comparison.rows) < 2 or any(row.best for row in comparison.rows):
        return []
    if comparison.apart.other:
        return [
            "No best variant is marked, because not every row was scored on the same test examples."
        ]
    if any(row.missing for row in comparison.rows):
        return ["No best variant is marked, because not every row has every seed."]
    return [
        "No best variant is marked: none is ahead of all others by Tukey's test of all pairs at"
        f" {comparison.alpha:.3g}."
    ]


def _could_find(comparison: Comparison, baseline: str) -> list[str]:
    """What the seeds could have found, where a difference is not decided."""
    rows = [
        row
        for row in comparison.rows
        if row.difference is not None and row.difference.p is not None
    ]
    if all(
        row.difference is not None and (row.difference.p or 0.0) < comparison.alpha for row in rows
    ):
        return []
    found = [
        one for row in rows if (one := comparison.family.detectable(row.name, baseline)) is not None
    ]
    return (
        [f"With these seeds a difference of {max(found):.2g} is found with probability {CHANCE:g}."]
        if found
        else []
    )


def _cost_notes(records: Records) -> list[str]:
    """Where the costs come from, and whether budgets were held equal."""
    notes = [
        "FLOPs: XLA's count of one training step as lowered for the CPU, before it is optimised,"
        " loops counted in full, on a batch of mean size. ms per step: median, as timed in this"
        " sweep beside its other trials. Peak memory: of the process, on the host."
    ]
    plan = records.plan
    if any(candidate.counted.transcendentals is not None for candidate in plan.candidates):
        notes.append(
            "Transcendentals: exponentials, logarithms, tanh, roots and the like of one step, one"
            " an element; they are no FLOPs."
        )
    if plan.budget is None:
        sizes = [candidate.parameters for candidate in plan.candidates]
        least = min(sizes, default=0)
        wide = max(sizes) / least - 1 if least else 0.0
        return [
            *notes,
            "Budgets were not held equal"
            + (f": parameters differ by up to {100 * wide:.3g} %." if wide >= 0.0005 else "."),
        ]
    held = {"parameters": "parameters", "flops": "FLOPs per step"}[plan.budget["match"]]
    knobs = ", ".join(
        dict.fromkeys(candidate.budget["knob"] for candidate in plan.candidates if candidate.budget)
    )
    unequal = [one.name for one in differing(records) if one.kind == "unequal"]
    besides = f" Not held equal: {several(unequal)}." if unequal else ""
    notes.append(
        f"Budget: {held} held to those of {plan.budget['to'] or plan.baseline} by {knobs}.{besides}"
    )
    return [
        *notes,
        *dict.fromkeys(
            _short_of(candidate)
            for candidate in plan.candidates
            if candidate.budget and candidate.budget["note"]
        ),
    ]


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
    rows = tuple(_contrast(one) for one in verdict.contrasts)
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
    found = judged.found
    numbers = (None, None, None) if found is None else (found.mean, found.lower, found.upper)
    rests = f" (by its {found.rests} bound)" if found is not None and found.rests else ""
    outcome = judged.outcome + (f": {judged.why}" if judged.why else rests)
    return (
        judged.text,
        f"{judged.seeds}",
        *map(number, numbers),
        f"{outcome}; {hint(judged)}" if judged.power else outcome,
    )


def variants(records: Records) -> Table:
    """What every variant is: its own settings, what the budget solver set, and what all share."""
    plan = records.plan
    rows = []
    for variant, own in plan.variants.items():
        rows.append((variant, _written(own) or "as the base", _solved(records, variant)))
    base = f"All: {plan.config}" + (f" with {_written(plan.base)}." if plan.base else ".")
    table = Table(
        "What is compared",
        ("variant", "its settings", "set by the budget"),
        tuple(rows),
        notes=(base, *_differing(records)),
    )
    return table if plan.budget is not None else table.only(table.columns[:2])


def _differing(records: Records) -> tuple[str, ...]:
    """What differs beside the system, and why."""
    why = {
        "compared": "Differ as compared",
        "tuned": "Differ as tuned",
        "budget": "Set by the budget",
        "unequal": "Not held equal",
    }
    found = {kind: [one.sentence for one in differing(records) if one.kind == kind] for kind in why}
    return tuple(
        f"{why[kind]}: {'; '.join(sentences)}." for kind, sentences in found.items() if sentences
    )


def _solved(records: Records, variant: str) -> str:
    """What the budget solver set for the standing candidate of a variant, before the choice for
    any; "-" for the one to match.
    """
    plan, standing = records.plan, records.standing(variant)
    if plan.budget is None or variant == (plan.budget["to"] or plan.baseline):
        return NONE
    budgets = [
        one.budget
        for one in ([standing] if standing else plan.of(variant))
        if one.budget is not None
    ]
    return (
        " or ".join(dict.fromkeys(_written({one["knob"]: one["value"]}) for one in budgets)) or NONE
    )


def _written(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={text(value)}" for key, value in values.items())


def tuning(records: Records, method: str) -> Table | None:
    """What was tried for each variant on the validation split, with intervals as those of the
    comparison; None where nothing was tuned.
    """
    plan, metric = records.plan, records.plan.select["metric"]
    if all(len(plan.of(variant)) < 2 for variant in plan.variants):
        return None
    scored = {
        one.id: {record.seed: record.scores["valid"].get(metric) for record in records.of(one)}
        for one in plan.candidates
    }
    first = (
        plan.seeds[:1] if plan.search is not None else plan.seeds
    )  # a search looks at the first seed alone
    values = {
        identity: {seed: one for seed, one in seeds.items() if one is not None and seed in first}
        for identity, seeds in scored.items()
    }
    known = [
        record.measures["valid"][metric]
        for record in records.trials
        if metric in record.measures["valid"]
    ]
    family = Family(values, plan.select["mode"], scale(known))
    rows: list[tuple[str, ...]] = []
    strong: set[int] = set()
    for candidate in (candidate for variant in plan.variants for candidate in plan.of(variant)):
        chosen = (
            records.choice is not None
            and records.choice.candidate(candidate.variant) == candidate.id
        )
        strong |= {len(rows)} if chosen else set()
        found = family.mean(candidate.id, method)
        cells = (
            f"{found.n}",
            number(found.mean),
            interval(found.interval),
            "chosen" if chosen else "",
        )
        rows.append((candidate.variant, settings(candidate.tuned), *cells))
    tried = {len(plan.of(variant)) for variant in plan.variants}
    note = "Each variant had " + (
        f"{tried.pop()} settings tried."
        if len(tried) == 1
        else "NOT the same number of settings tried."
    )
    if plan.search is not None:
        how = settings(
            {
                name: plan.search[name]
                for name in ("sampler", "trials", "pruner")
                if plan.search.get(name)
            }
        )
        note += (
            f" They were searched for ({how}) with the first seed; the best of each variant was"
            " trained with all. Of them, "
        )
        note += "; ".join(_searched(records, variant) for variant in plan.variants) + "."
    columns = ("variant", "settings", "n", f"{metric}, validation", "95 % interval", "")
    notes = (note, *_lost_settings(records))
    return Table(
        "Tuning, on the validation split",
        columns,
        tuple(rows),
        frozenset((2, 3, 4)),
        frozenset(strong),
        notes=notes,
    )


def _lost_settings(records: Records) -> list[str]:
    """What the choice was made without: trials that failed, or were stopped by request."""
    notes = []
    for variant, one in records.choice.chosen.items() if records.choice is not None else ():
        if accepted := one.get("accepted"):
            without = ", ".join(f"{name} ({why})" for name, why in accepted.items())
            notes.append(
                f"{variant}: {one.get('trained')} of {one.get('settings')} settings trained; chosen"
                f" without {without}."
            )
    return notes


def _searched(records: Records, variant: str) -> str:
    """What became of the settings that were searched for a variant: "additive: 4 done, 12 pruned,
    3,400 steps".
    """
    found = [
        one.seen
        for one in records.trials
        if one.candidate.variant == variant and one.seed == records.plan.seeds[0]
    ]
    states = [f"{number} {state}" for state, number in counts(found).items()]
    return f"{variant}: {', '.join([*states, f'{sum(seen.step for seen in found):,} steps'])}"


def trials(records: Records) -> Table:
    """State of every trial."""
    needed = records.wanted
    rows = tuple(_trial(record, record in needed) for record in records.trials)
    weak = frozenset(
        place for place, record in enumerate(records.trials) if record.seen.state != "done"
    )
    columns = ("trial", "seed", "state", "step", "attempts", "time", "to first step", "message")
    return Table("Trials", columns, rows, frozenset((1, 3, 4, 5, 6)), weak=weak)


def _trial(record: Record, needed: bool) -> tuple[str, ...]:
    seen, first = record.seen, record.cost.first_step_seconds
    state = seen.word if needed or seen.state != "pending" else "not needed"
    started = NONE if first is None else f"{first:.1f} s"
    time = clock(seen.seconds) if seen.seconds else NONE
    return (
        seen.trial.candidate.id,
        f"{record.seed}",
        state,
        f"{seen.step}/{seen.total}",
        f"{seen.attempts}",
        time,
        started,
        seen.message,
    )
