"""Warnings before any number of a report: everything that makes a comparison less fair, or its
error rate higher, than it looks.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from attnlab.experiments.define import grouped, is_derived, several, text
from attnlab.experiments.report import looks
from attnlab.experiments.report.collect import Record, Records
from attnlab.experiments.report.comparison import Comparison, label
from attnlab.experiments.report.environment import Environment, version
from attnlab.experiments.report.equality import differing, other_scale, other_test_data
from attnlab.experiments.report.misfits import of_sweep
from attnlab.records.measures import is_finite
from attnlab.records.provenance import accepted_changes


class Warned(NamedTuple):
    """One warning: its kind, of `KINDS`, and a sentence or two."""

    kind: str
    text: str


def warnings(records: Records, comparison: Comparison, machines: Environment) -> tuple[Warned, ...]:
    """Returns the warnings on a sweep of every kind in `KINDS`, each as (kind, text), the most
    serious kind first.
    """
    return tuple(
        Warned(kind, line)
        for kind, lines in KINDS.items()
        for line in lines(records, comparison, machines)
    )


Lines = Callable[[Records, Comparison, Environment], Iterator[str]]


def _test_data(records: Records, comparison: Comparison, _: Environment) -> Iterator[str]:
    """Yields a warning if the baseline's seeds were scored on different test examples, and one for
    each reason why variants were scored on others than the baseline; nothing before the choice.
    """
    base = comparison.row(records.plan.baseline)
    if base is None:
        return
    metric = comparison.basis.metric
    if why := other_test_data(base.records, base.records):
        yield f"The seeds of {base.name} were not scored on the same test examples ({why})."
    others: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row is base or is_derived(metric) or other_scale(row.records, base.records, metric):
            continue
        if why := other_test_data(row.records, base.records):
            unsaid = frozenset((row.name, base.name)) in comparison.apart.unsaid
            others.setdefault(why if unsaid else f"{why}, as compared", []).append(row.name)
    for why, names in others.items():
        where = f"Not scored on the test examples of {base.name}, so without difference to it"
        yield f"{where}: {several(names)} ({why})."


def _measure(records: Records, comparison: Comparison, _: Environment) -> Iterator[str]:
    """Yields a warning for each reason why variants' numbers have another scale than the
    baseline's, with these variants and the measures, if any, by which all can be compared; nothing
    before the choice.
    """
    base, metric = comparison.row(records.plan.baseline), comparison.basis.metric
    if base is None:
        return
    apart: dict[str, list[str]] = {}
    for row in comparison.rows:
        if why := other_scale(row.records, base.records, metric):
            apart.setdefault(why, []).append(row.name)
    for why, names in apart.items():
        named = dict(pair for record in base.records for pair in record.measures["test"].items())
        unit = f" ({named[metric].unit})" if metric in named and named[metric].unit else ""
        rows = [row.records for row in comparison.rows]
        others = [
            name for name in named if not any(other_scale(row, base.records, name) for row in rows)
        ]
        hint = f" Compare by {' or '.join(others)}, which depends on no such thing." * bool(others)
        yield f"Not comparable with {base.name} by {metric}{unit}: {several(names)} ({why}).{hint}"


def _records(records: Records, comparison: Comparison, _: Environment) -> Iterator[str]:
    """Yields a warning for each contradiction in the records of the reported trials, with those
    trials (see `misfits.of_sweep`).
    """
    misfits = of_sweep(records, comparison.records)
    for misfit, names in grouped((misfit, name) for name, misfit in misfits).items():
        why = "Records do not fit together, so that no number here can be relied on"
        yield f"{why}: {misfit} ({several(names)})."


def _held_equal(records: Records, *_: Any) -> Iterator[str]:
    unequal = [setting.sentence for setting in differing(records) if setting.kind == "unequal"]
    if unequal:
        yield f"Not held equal: {'; '.join(unequal)}."


def _budget(records: Records, comparison: Comparison, _: Environment) -> Iterator[str]:
    """Yields a warning if the budget is not matched, with the variants and by how many per cent
    they miss it.
    """
    off = []
    for candidate in {row.candidate.id: row.candidate for row in comparison.rows}.values():
        met = candidate.budget
        if met is not None and not met["matched"]:
            off.append(
                f"{candidate.variant} by {100 * (met['reached'] / met['wanted'] - 1):+.3g} %"
                + ", which was accepted" * met.get("accepted", False)
            )
    if off and records.plan.budget is not None:
        yield f"The budget ({records.plan.budget['match']}) is not matched: {several(off)}."


def _lost(records: Records, comparison: Comparison, _: Environment) -> Iterator[str]:
    """Yields a warning if reported trials have no test score, and one for each variant that was
    chosen without failed or stopped trials; before there are test scores only one, if the sweep is
    over and no trial came through.
    """
    if comparison.basis.split != "test":
        if records.complete:
            yield "No trial came through, so that the test split has not been read."
        return
    lost = [f"{row.name}: {', '.join(row.missing)}" for row in comparison.rows if row.missing]
    number = sum(len(row.missing) for row in comparison.rows)
    whole = sum(len(row.records) for row in comparison.rows)
    if lost:
        yield (
            f"{number} of {whole} reported trials {'has' if number == 1 else 'have'} no score:"
            f" {several(lost)}."
        )
    for variant, chosen in records.choice.chosen.items() if records.choice is not None else ():
        if accepted := chosen.get("accepted"):
            trials = "1 trial that failed or was stopped"
            if len(accepted) > 1:
                trials = f"{len(accepted)} trials that failed or were stopped"
            names = several(list(accepted))
            yield f"{variant} was chosen without {trials} ({names}), which was accepted."


def _code(records: Records, comparison: Comparison, _: Environment) -> Iterator[str]:
    """Yields warnings if the code differs between reported trials or from the code that scored the
    test split, or if the user's own code changed during training.
    """
    reported = comparison.records
    versions = grouped(
        (version(run.manifest.code), _name(run)) for run in reported if run.manifest is not None
    )
    if len(versions) > 1:
        lines = [
            f"{name} ({several(each) if len(each) < 4 else f'{len(each)} trials'})"
            for name, each in versions.items()
        ]
        trained = f"The reported trials were trained by {len(versions)} versions of the code"
        yield f"{trained}: {several(lines)}."
    others = [name for name in looks.versions(records) if name not in versions]
    if others and versions:
        scored = "The test split was scored by another version of the code than trained"
        yield f"{scored}: {several(others)}."
    for record in reported:
        for word in accepted_changes(record.manifest.own_code if record.manifest else None):
            when = f"{several(list(word['changed']))}, after step {word['step'] or 0}"
            about = f"was trained ({when}), which was accepted"
            yield f"The user's own code changed while {_name(record)} {about}."


def _tuning(records: Records, *_: Any) -> Iterator[str]:
    """Yields a warning if variants had different numbers of tuned settings tried."""
    tried = {variant: len(records.plan.of(variant)) for variant in records.plan.variants}
    if len({*tried.values()}) > 1:
        counts = [f"{variant} {number}" for variant, number in tried.items()]
        yield f"Not every variant had as many settings tried: {several(counts)}."


def _edge(records: Records, *_: Any) -> Iterator[str]:
    """Yields a warning if a tuned number of a chosen candidate is the smallest or the largest that
    was tried for its variant.
    """
    at: dict[tuple[str, str], list[str]] = {}
    for variant in records.plan.variants:
        standing, candidates = records.representative(variant), records.plan.of(variant)
        for key, value in standing.tuned.items() if standing else ():
            tunings = [candidate.tuned for candidate in candidates]
            tried = sorted({tuned[key] for tuned in tunings if is_finite(tuned.get(key))})
            if is_finite(value) and len(tried) > 1 and value in (tried[0], tried[-1]):
                edge = (f"{key}={text(value)}", f"{text(tried[0])} to {text(tried[-1])}")
                at.setdefault(edge, []).append(variant)
    edges = [f"{where} of {several(names)} ({tried})" for (where, tried), names in at.items()]
    if edges:
        yield f"At the edge of what was tried: {'; '.join(edges)}. What is best may lie beyond."


def _seeds(records: Records, *_: Any) -> Iterator[str]:
    """Yields a sentence, if anything was tuned and the choice is made, on which reported seeds also
    chose the settings and which are fresh.
    """
    plan = records.plan
    if records.choice is None or all(len(plan.of(variant)) < 2 for variant in plan.variants):
        return
    first, *fresh = map(str, plan.seeds)
    if plan.search is None:
        seeds = f"Seeds {', '.join((first, *fresh))}" if fresh else f"Seed {first}"
        reported = "are reported" if fresh else "is reported"
        yield f"{seeds} chose the settings, on validation, and {reported} too: no seed is fresh."
    else:
        others = f"; seeds {', '.join(fresh)} are fresh." if fresh else ": no seed is fresh."
        others = f"; seed {fresh[0]} is fresh." if len(fresh) == 1 else others
        yield f"Seed {first} chose the settings, on validation, and is reported too{others}"


def _retried(_: Records, comparison: Comparison, __: Environment) -> Iterator[str]:
    again = [_name(record) for record in comparison.records if record.effort.retries]
    if again:
        yield f"Failed and run again: {several(again)}."


def _counts(_: Records, comparison: Comparison, __: Environment) -> Iterator[str]:
    """Yields warnings on FLOPs that are too low (loops of unknown length counted once) and on
    parameters that get no gradient.
    """
    candidates = [row.candidate for row in comparison.rows]
    looping = [candidate for candidate in candidates if candidate.counted.loops]
    if low := list(dict.fromkeys(candidate.variant for candidate in looping)):
        most = max(candidate.counted.loops for candidate in looping)
        why = f"loops of unknown length ({most}) were counted once"
        yield f"FLOPs of {several(low)} are too low: {why}."
    idle = dict.fromkeys((each.counted.idle, each.variant) for each in candidates)
    groups = grouped((paths, variant) for paths, variant in idle if paths)
    lines = [f"{several(paths)} ({several(variants)})" for paths, variants in groups.items()]
    if lines:
        yield f"Parameters that get no gradient, and are counted all the same: {'; '.join(lines)}."


def _cores(records: Records, comparison: Comparison, _: Environment) -> Iterator[str]:
    """Yields a warning if trials or test scoring ran on another number of processor cores than
    planned.
    """
    planned, other = records.plan.cores, list[str]()
    for record in comparison.records:
        if record.manifest is not None and record.manifest.devices.get("kind") == "cpu":
            numbers = [number for number in record.effort.cores if number != planned]
            other += [f"{_name(record)} ({number})" for number in numbers]
    for look in records.looks:
        if look.get("cores", planned) != planned:
            other.append(f"{look['candidate']} on the test split ({look['cores']})")
    if planned is not None and other:
        cores = f"{planned} core{'s' * (planned > 1)}"
        yield f"Not on the {cores} of the plan, which was accepted: {several(other)}."


def _environment(_: Records, __: Comparison, environment: Environment) -> Iterator[str]:
    """Yields a warning with the names of environment facts in which trials differ, apart from code
    and data, which have their own warnings.
    """
    named = (name for name in environment.differing if name not in ("code", "commit"))
    names = [name for name in named if not name.startswith("your code")]
    names = [name for name in names if not name.endswith(" data")]
    if names:
        yield f"The trials differ in {several(names)}: see 'What differs between trials'."


KINDS: Mapping[str, Lines] = {
    "records": _records,
    "measure": _measure,
    "test data": _test_data,
    "held equal": _held_equal,
    "budget": _budget,
    "looks": lambda records, *_: looks.sentences(records),
    "lost": _lost,
    "code": _code,
    "tuning": _tuning,
    "edge": _edge,
    "seeds": _seeds,
    "retried": _retried,
    "counts": _counts,
    "cores": _cores,
    "environment": _environment,
}
"""Every kind of warning with what finds it, the gravest first."""


def _name(record: Record) -> str:
    """ "general seed 1", with its tuned settings."""
    return f"{label(record.candidate)} seed {record.seed}"
