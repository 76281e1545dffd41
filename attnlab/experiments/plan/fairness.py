"""What makes the variants of a plan comparable, checked and said before anything trains: scores
that the task has, by which an experiment chooses and reports, with the variants that these may not
compare; and a budget that is held equal, with the refusal where it is missed. Imports no jax.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attnlab.config import flat, is_below
from attnlab.errors import UserError, nearest
from attnlab.experiments.define import check_derived, forms, is_derived, reached, several
from attnlab.experiments.plan.candidate import Candidate
from attnlab.experiments.plan.plan import BudgetTerms, Plan
from attnlab.records.measures import DEPENDS, TEXT, VOCABULARY, declared, depends_on

FLAG = "--accept-unmatched"
WORDS = {"parameters": "parameters", "flops": "FLOPs per step"}
_READ = ("task", "data", "batch.longer", "batch.max_length")
"""The settings that decide which examples a split has, and what is learned from them."""


def check_metrics(plan: Plan, task: Any) -> None:
    """Raises `UserError` unless the task has the scores of the plan's selection, measure and claim,
    the first two with the right mode, and the selection score fits what is tuned and, with a
    pruner, is known during training.
    """
    measures = {name: measure.better for name, measure in declared(task).items()}
    for contrast in plan.claim["contrasts"] if plan.claim else ():
        check_derived("claim", contrast.get("on", ""), measures, task.evaluated)
    for name, asked in (("select", plan.select), ("measure", plan.measure)):
        metric, mode = asked["metric"], asked["mode"]
        derived = name == "measure" and is_derived(metric)
        if derived:
            check_derived(name, metric, measures, task.evaluated)
        elif measures and metric not in measures:
            choices = measures if name == "select" else {*measures, *forms()}
            raise UserError(f"{name}: unknown metric {metric!r}; {nearest(metric, choices)}")
        better = "min" if derived else measures.get(metric, mode)
        if mode != better:
            raise UserError(
                f"{name}=({metric!r}, {mode!r}): of {metric!r}, {'less' if derived else better} is"
                f" better; write ({metric!r}, {better!r})"
            )
    _check_chosen(plan, task)
    if plan.search is not None and plan.search["pruner"] is not None:
        _check_pruned(plan, task)


def comparison_lines(plan: Plan, candidates: Sequence[Candidate], task: Any) -> Iterator[str]:
    """Yields a line on each group of variants whose data or vocabulary settings differ from the
    baseline's: whether the measure still compares them, and which measures do. By the settings
    alone; the report goes by what was read.
    """
    settings = {candidate.variant: flat(candidate.config) for candidate in reversed(candidates)}
    base, differing = settings[plan.baseline], dict[tuple[str, ...], list[str]]()
    for variant, values in settings.items():
        names = {key for key in {**base, **values} if values.get(key) != base.get(key)}
        nodes = {name.removesuffix(".name") for name in names if name.endswith(".name")}
        names = nodes | {name for name in names if name.rpartition(".")[0] not in nodes}
        deciding = sorted(name for name in names if is_below(name, (*_READ, VOCABULARY)))
        differing.setdefault(tuple(deciding), []).append(variant)
    metric = plan.measure["metric"]
    wanted = reached(metric)
    name = wanted.metric if wanted else metric
    depending = _dependence(name, task)
    for deciders, variants in differing.items():
        read = any(is_below(name, _READ) for name in deciders)
        parts = [part for part in DEPENDS if _deciding(part, deciders) or (read and part != TEXT)]
        others = [score for score, needs in depending.items() if not {*needs} & {*parts}]
        same = [DEPENDS[part] for part in parts if part in depending[name]]
        same = ["test examples"] * (read and not is_derived(metric)) + same
        what = f"{several(variants)} and {plan.baseline} differ in {several(deciders)}"
        if same:
            sure = "" if read else f"; {' or '.join(others) or 'no other measure'} does in any case"
            same_parts = " and ".join(same)
            yield f"{what}: {metric} compares them only if they have the same {same_parts}{sure}"
        elif deciders:
            yield f"{what}, on which {metric} does not depend: it compares them"


def _dependence(metric: str, task: Any) -> dict[str, tuple[str, ...]]:
    """Returns {score: parts} for each score of the task and for `metric`, where the parts are what
    its value depends on (vocabulary, classes, ...).
    """
    scores = declared(task)
    learned = getattr(getattr(task, "data", None), "learned", None)
    classes = bool(getattr(learned, "classes", ()) or getattr(learned, "sentences", 0))
    return {name: depends_on(name, scores.get(name), classes) for name in (*scores, metric)}


def _deciding(part: str, keys: Iterable[str]) -> list[str]:
    """Returns the settings among `keys` that decide `part`, on which a measure may depend."""
    return [key for key in keys if is_below(key, (part, *["vocabulary.file"] * (part == TEXT)))]


def _check_chosen(plan: Plan, task: Any) -> None:
    """Raises `UserError` if a tuned setting changes something (the vocabulary, say) on which the
    selection score depends, so that its values are not comparable.
    """
    metric = plan.select["metric"]
    tuned = {key for point in plan.tune for key in point["overrides"]}
    tuned |= set(plan.search["space"]) if plan.search is not None else set()
    deciding = {
        name: [key for part in parts for key in _deciding(part, sorted(tuned))]
        for name, parts in _dependence(metric, task).items()
    }
    if keys := deciding[metric]:
        others = [name for name in deciding if not deciding[name]]
        raise UserError(
            f"select: {metric!r} depends on the vocabulary, which {keys[0]} tunes, so that the better"
            f" number need not be the better model; select by {' or '.join(others) or 'another score'},"
            " or compare vocabularies as variants"
        )


def _check_pruned(plan: Plan, task: Any) -> None:
    """Raises `UserError` unless the selection score is computed during training and a trial makes
    at least three evaluations, as a pruner needs.
    """
    scores = sorted({*task.evaluated} & {*getattr(task, "measures", {})})
    if plan.select["metric"] not in task.evaluated:
        raise UserError(
            "search.pruner needs a score that is known while a trial trains, not"
            f" {plan.select['metric']!r}; choose from: {', '.join(scores)}"
        )
    steps, every = task.config.training.steps, task.config.training.evaluate_every
    if not every or 3 * every > steps:
        raise UserError(
            "search.pruner cuts a training at a third of its evaluations, and"
            f" training.evaluate_every={every} of {steps} steps makes fewer than three; set it to"
            f" {max(1, steps // 3)} or less"
        )


def budget_lines(plan: Plan) -> Iterator[str]:
    """Yields a line for each candidate of a plan with a budget (what is matched, by which setting
    at which value, and how far off it is); without a budget, one line with the parameters of each
    variant, if they are several.
    """
    if plan.budget is None:
        sizes = {candidate.variant: candidate.parameters for candidate in reversed(plan.candidates)}
        each = [f"{name} {sizes[name]:,}" for name in plan.variants if name in sizes]
        if len(each) > 1:
            yield f"parameters: {', '.join(each)}: not matched, for the experiment has no budget"
        return
    for candidate in plan.candidates:
        if candidate.budget is not None:
            yield f"budget: {_match_line(candidate, plan.budget)}"


def check_budget(plan: Plan, old: Plan | None) -> Plan:
    """Returns the plan with "accepted" (whether the user accepts it) in the `budget` of every
    candidate that misses the budget; raises `UserError` for one that misses it unaccepted and is
    not in the plan `old`.

    Args:
      plan: what would be written; it says whether the user accepts that candidates miss it.
      old: what stands there; its candidates are not judged again.

    Raises:
      UserError: one misses it, and nobody has accepted that.
    """
    before = {candidate.id: candidate.budget for candidate in old.candidates} if old else {}
    candidates = []
    for candidate in plan.candidates:
        met, judged = candidate.budget, candidate
        if met is not None and not met["matched"] and plan.budget is not None:
            if candidate.id not in before and not plan.unmatched:
                line = _match_line(candidate, plan.budget)
                raise UserError(f"budget: {line}; change it, or accept it with {FLAG}")
            earlier = before.get(candidate.id)
            taken = plan.unmatched if earlier is None else earlier.get("accepted", False)
            judged = dataclasses.replace(candidate, budget={**met, "accepted": taken})
        candidates.append(judged)
    return dataclasses.replace(plan, candidates=tuple(candidates))


def _match_line(candidate: Candidate, terms: BudgetTerms) -> str:
    """Returns a line on how near a candidate comes to its budget, "general has 12,000 parameters of
    12,345 wanted (-2.79 %) by system.decoder=40", with "NOT MATCHED within 1 %" if it misses what
    the `terms` allow.
    """
    met = candidate.budget
    assert met is not None
    tuned = ", ".join(f"{key}={value}" for key, value in candidate.tuned.items())
    name = f"{candidate.variant} ({tuned})" if tuned else candidate.variant
    missed = "" if met["matched"] else f": NOT MATCHED within {100 * terms['within']:g} %"
    note = f" ({met['note']})" if met["note"] else ""
    return (
        f"{name} has {met['reached']:,.0f} {WORDS[terms['match']]} of {met['wanted']:,.0f} wanted"
        f" ({candidate.percent_off:+g} %) by {met['knob']}={met['value']}{missed}{note}"
    )
