"""Checks that the task has the scores by which an experiment chooses and reports, and says which
variants they may not compare.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attnlab.config import flat, is_below
from attnlab.errors import UserError, nearest
from attnlab.experiments.define import check_derived, forms, is_derived, reached, several
from attnlab.experiments.plan.candidate import Candidate
from attnlab.experiments.plan.plan import Plan
from attnlab.records.measures import DEPENDS, TEXT, VOCABULARY, declared, depends_on

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
