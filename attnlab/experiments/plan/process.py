"""Makes plans and writes nothing: every candidate is resolved, checked as `train` does it, built
with the true vocabularies (shapes only) and counted before the first trial starts.

It needs jax, so the launcher calls it in a process of its own (`run/planning.py`).
"""

import dataclasses
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.experiments import define
from attnlab.experiments.define import AS_IT_IS, SHOWN, Changes, several
from attnlab.experiments.plan import fairness, growth
from attnlab.experiments.plan.budgets import matched
from attnlab.experiments.plan.building import Builder, naming
from attnlab.experiments.plan.candidate import Candidate, Counted, Wanted, with_code
from attnlab.experiments.plan.plan import Plan
from attnlab.records import provenance
from attnlab.records.files import timestamp
from attnlab.records.json_kinds import SWEEP
from attnlab.records.sealed import CHOICE
from attnlab.tasks.schemas import Settings

MOST_POINTS = 64  # of a search, for which a budget is looked at before the first is drawn
Count = Callable[[int, int], object]
Made = TypeVar("Made")
Drawn = tuple[str, Mapping[str, Any]]
"""A variant and its tuned settings."""


def _in_silence(done: int, total: int) -> None:
    """Does nothing: the default for `count`."""


def made(
    file: str, directory: Path, changes: Changes = AS_IT_IS, count: Count = _in_silence
) -> Plan:
    """Makes and returns the plan of an experiment file for a sweep folder, extending the one that
    is there; writes no file, prints notes on incomparable variants, calls `count(done, total)`.

    Args:
      file: the experiment file, with its argument.
      directory: the sweep folder.
      changes: of the command line; part of the experiment.
      count: is called with the number of candidates that are planned, and of all.

    Raises:
      UserError: a candidate, named by its variant, cannot be built or run; or the folder holds
        trials that no longer fit.
    """
    old = Plan.read(directory)
    accepted = changes.unmatched or (old is not None and old.unmatched)
    stated = define.definition(define.load_experiment(file, changes), file)
    defined = growth.planned_before(stated, old)
    identity = define.definition_hash(defined)
    if old is not None:
        other = growth.check_code(old, directory, changes.accept)
        if old.hash == identity and not other:
            return dataclasses.replace(old, unmatched=accepted)
        if old.hash != identity:
            growth.check_growth(old, defined, directory)
    plan = Plan(
        **defined,
        file=file,
        hash=identity,
        created=old.created if old else timestamp(),
        candidates=(),
        cores=old.cores if old else None,
        unmatched=accepted,
        version=old.version if old else SWEEP,
    )
    plan = dataclasses.replace(plan, seeds=tuple(plan.seeds), tune=tuple(plan.tune))
    wanted = listed(plan) if plan.search is None else searched_points(plan, old)
    builder = Builder(plan.config, plan.seeds[0])
    lowest = [] if plan.search is None else check_space(plan, builder, count)
    if old is None:
        fairness.check_budget(plan.grown(lowest), None)
    made_now = candidates(plan, wanted, builder, count)
    planned = [_as_planned(candidate, old, directory, changes.accept) for candidate in made_now]
    shown = lowest or planned
    first = builder.config(shown[0].overrides)
    for line in fairness.comparison_lines(plan, shown, builder.built(first)):
        print(f"note: {line}", file=sys.stderr)
    plan = plan.grown(planned).promote(
        candidate.id for candidate in (old.candidates if old else ()) if candidate.promoted
    )
    for candidate in plan.candidates:
        growth.check_begun(candidate, directory)
    if old is not None and not changes.replace:
        growth.check_kept(old, plan, directory)
    return dataclasses.replace(plan, own_code=_own_code(plan, old))


def grown(directory: Path, points: Iterable[Drawn], count: Count = _in_silence) -> Plan:
    """Returns the plan of a sweep folder with candidates added for those `points`, (variant, tuned
    settings) pairs, that it lacks; checks that they meet the budget, calls `count(done, total)` for
    each and writes nothing.

    Raises:
      UserError: there is no plan, or a candidate cannot be built, or misses the budget and nobody
        has accepted that.
    """
    plan = Plan.of_sweep(directory)
    growth.check_code(plan, directory)
    wanted = {want.id: want for want in (plan.want(*point) for point in points)}
    new = [want for want in wanted.values() if plan.made_of(want.id) is None]
    added = candidates(plan, new, Builder(plan.config, plan.seeds[0]), count)
    for candidate in added:
        growth.check_begun(candidate, directory)
    return fairness.check_budget(plan.grown(added), plan)


def listed(plan: Plan) -> list[Wanted]:
    """Returns the candidates of a plan without a search, before their configs are resolved
    (`Wanted`): every variant with every point of `tune`, or without tuning every variant as it is.
    """
    points = plan.tune or ({"name": "", "overrides": {}},)
    wanted = itertools.product(plan.variants, points)
    return [plan.want(variant, point["overrides"], point["name"]) for variant, point in wanted]


def searched_points(plan: Plan, old: Plan | None) -> list[Wanted]:
    """Returns the wanted candidates that the search of the plan `old` has drawn so far, of variants
    whose search is unchanged in `plan`; [] without `old`.
    """
    if old is None:
        return []
    both = [variant for variant in plan.variants if variant in old.variants]
    same = [variant for variant in both if plan.study(variant) == old.study(variant)]
    return [plan.want(made.variant, made.tuned) for made in old.candidates if made.variant in same]


def candidates(
    plan: Plan, wanted: Sequence[Wanted], builder: Builder, count: Count = _in_silence
) -> list[Candidate]:
    """Returns a `Candidate` for each wanted one, its config resolved and checked, parameters and
    FLOPs counted; calls `count(done, total)` before each; raises `UserError` if two are equal or
    the plan's metrics do not fit the task of the first.

    Raises:
      UserError: one cannot be built, two are the same, or a metric is unknown.
    """
    resolved = dict(_of_each(wanted, lambda want: (want.id, builder.config(want.overrides))))
    _check_different(wanted, resolved)
    for want in wanted[:1]:
        with naming(want.variant, want.tuned):
            task = builder.task(resolved[want.id])
        fairness.check_metrics(plan, task)

    places = itertools.count()

    def planned(want: Wanted) -> Candidate:
        count(next(places), len(wanted))
        return _candidate(plan, want, builder)

    return _of_each(wanted, planned)


def _of_each(wanted: Sequence[Wanted], work: Callable[[Wanted], Made]) -> list[Made]:
    """Returns the list of `work(candidate)` of the wanted candidates; if any raise `UserError`,
    does the others too and then raises one with the first error of each variant, equal ones once,
    at most `SHOWN`.
    """
    results: list[Made] = []
    refused: dict[str, tuple[str, str]] = {}  # what is wrong, with which candidate, by variant
    for want in wanted:
        try:
            with naming(want.variant, want.tuned):
                results.append(work(want))
        except UserError as error:
            cause = str(error.__cause__)
            refused.setdefault(want.variant, (cause, str(error).removesuffix(f": {cause}")))
    if names := define.grouped(refused.values()):
        shown = [f"{several(named)}: {cause}" for cause, named in names.items()][:SHOWN]
        more = [f"and {len(names) - SHOWN} more mistakes"] * (len(names) > SHOWN)
        raise UserError("; ".join([*shown, *more]))
    return results


def check_space(plan: Plan, builder: Builder, count: Count = _in_silence) -> list[Candidate]:
    """Checks that every variant accepts the settings that a search may draw (lowest of each range,
    each option of a choice); returns the candidates with the first of these, with a budget those of
    up to `MOST_POINTS` combinations per variant. It calls `count(done, total)` for each candidate.

    Raises:
      UserError: one does not.
    """
    assert plan.search is not None
    space = plan.search["space"].items()
    options = {key: values.get("options") or [values.get("low")] for key, values in space}
    first = {key: values[0] for key, values in options.items()}
    wanted = [plan.want(variant, first) for variant in plan.variants]
    lowest = candidates(plan, wanted, builder, count)
    for variant in plan.variants:
        for key, value in ((key, value) for key, values in options.items() for value in values[1:]):
            with naming(variant, {key: value}):
                builder.config(plan.want(variant, {**first, key: value}).overrides)
    points = [dict(zip(options, row, strict=True)) for row in itertools.product(*options.values())]
    others = points[1:MOST_POINTS] if plan.budget is not None else []
    checked = list(lowest)
    for point, like in itertools.product(others, lowest):
        count(len(checked), len(lowest) * (1 + len(others)))
        checked.append(_budgeted(plan, like, point, builder))
    return checked


def _budgeted(plan: Plan, like: Candidate, point: dict[str, Any], builder: Builder) -> Candidate:
    """Returns the candidate `like` with other tuned settings `point`, their id and their solved
    budget; the rest is unchanged.
    """
    wanted = plan.want(like.variant, point)
    with naming(like.variant, point):
        budget = matched(plan, wanted, builder)
    return dataclasses.replace(like, id=wanted.id, tuned=point, budget=budget)


def _candidate(plan: Plan, wanted: Wanted, builder: Builder) -> Candidate:
    """Makes and returns the `Candidate` of a wanted one: solves its budget, resolves its config,
    counts parameters and work, and puts the hashes of the user's code into its id.
    """
    overrides, budget = dict(wanted.overrides), None
    if plan.budget is not None:
        budget = matched(plan, wanted, builder)
        if wanted.variant != plan.budget["to"]:
            overrides[budget["knob"]] = budget["value"]
    config = builder.config(overrides)
    parameters = int(builder.count(config, "parameters"))
    work = builder.work(config)
    stored = json.loads(json.dumps(configs.to_dict(config)))
    code = provenance.code(stored).digests
    identity = with_code(wanted.id, code)
    before = wanted.id if identity != wanted.id else ""
    prunes = plan.search is not None and plan.search["pruner"] is not None
    until = 0 if prunes else None  # the search says when it may begin
    counted = Counted(work.transcendentals, work.loops, work.idle, builder.examples(config))
    made = Candidate(
        identity, wanted.variant, wanted.tuned, overrides, stored, parameters, work.flops, budget
    )
    return dataclasses.replace(made, code=code, wanted=before, until=until, counted=counted)


def _as_planned(candidate: Candidate, old: Plan | None, directory: Path, accept: bool) -> Candidate:
    """Returns the candidate with the id that it has in the plan `old`, or unchanged if `old` lacks
    it, or if its code has changed but no trial has begun and no choice is made; `accept` records
    today's code where `old` has none.
    """
    wanted = candidate.wanted or candidate.id
    before = old.made_of(wanted) or _alike(candidate, old) if old else None
    if before is None:
        return candidate
    other_code = before.code not in (None, candidate.code)
    if other_code and not growth.begun(before, directory) and not (directory / CHOICE).exists():
        return candidate
    # earlier plans did not store the code
    unknown = before.code is None and bool(candidate.code) and not accept
    code = None if unknown else candidate.code
    made_of = wanted if wanted != before.id else ""
    return dataclasses.replace(candidate, id=before.id, code=code, wanted=made_of)


def _alike(candidate: Candidate, old: Plan) -> Candidate | None:
    """Returns the candidate of the old plan with the same variant, tuned settings and resolved
    config (its overrides may differ by naming a default), or None if there is none.
    """
    meaning = json.loads(json.dumps(candidate.tuned)), candidate.config
    alike = (each for each in old.of(candidate.variant) if (each.tuned, each.config) == meaning)
    return next(alike, None)


def _own_code(plan: Plan, old: Plan | None) -> provenance.Record:
    """Returns the record for `Plan.own_code`: the experiment's own files now, and each change of a
    candidate's code that has been accepted so far.
    """
    accepted = [*provenance.accepted_changes(old.own_code)] if old else []
    now = {candidate.id: candidate.code for candidate in plan.candidates}
    for earlier in old.candidates if old else ():
        code = now.get(earlier.id)
        if code and earlier.code != code:
            edit = provenance.edit(earlier.code or {}, code)
            accepted.append({**edit, "candidate": earlier.id})
    return {**growth.own_files(plan).record(), "accepted": accepted}


def _check_different(wanted: Iterable[Wanted], resolved: dict[str, Settings]) -> None:
    """Raises `UserError` if two wanted candidates have the same resolved config, which happens
    where an override only names a default.
    """
    seen: dict[str, Wanted] = {}
    for want in wanted:
        other = seen.setdefault(configs.config_hash(resolved[want.id]), want)
        if other is not want:
            names = [json.dumps({"variant": each.variant, **each.tuned}) for each in (other, want)]
            raise UserError(
                f"two candidates have the same settings, {' and '.join(names)}; leave one out"
            )
