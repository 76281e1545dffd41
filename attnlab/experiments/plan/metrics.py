"""Checks that the task has the scores by which an experiment chooses and reports."""

from __future__ import annotations

from typing import Any

from attnlab.errors import UserError, nearest
from attnlab.experiments.define import (
    check_derived,
    forms,
    is_derived,
)
from attnlab.experiments.plan.plan import Plan
from attnlab.records.measures import VOCABULARY, declared, depends_on


def check_metrics(plan: Plan, task: Any) -> None:
    """Check that the task has the selection and measure scores, with the right mode; with a pruner,
    that the selection score is known during training.
    """
    measures = {name: one.better for name, one in declared(task).items()}
    for contrast in plan.claim["contrasts"] if plan.claim else ():
        check_derived("claim", contrast.get("on", ""), measures, task.evaluated)
    for name, asked in (("select", plan.select), ("measure", plan.measure)):
        metric, mode = asked["metric"], asked["mode"]
        if name == "measure" and is_derived(metric):
            check_derived(name, metric, measures, task.evaluated)
            if mode != "min":
                raise UserError(
                    f"{name}=({metric!r}, {mode!r}): of {metric!r}, less is better; write"
                    f" ({metric!r}, 'min')"
                )
            continue
        if measures and metric not in measures:
            known = measures if name == "select" else {*measures, *forms()}
            raise UserError(f"{name}: unknown metric {metric!r}; {nearest(metric, known)}")
        if measures and mode != measures[metric]:
            raise UserError(
                f"{name}=({metric!r}, {mode!r}): of {metric!r}, {measures[metric]} is better; write"
                f" ({metric!r}, {measures[metric]!r})"
            )
    _check_chosen(plan, task)
    if plan.search is not None and plan.search["pruner"] is not None:
        _check_pruned(plan, task)


def _check_chosen(plan: Plan, task: Any) -> None:
    """Check that no variant tunes what the score that chooses its settings depends on."""
    metric, known = plan.select["metric"], declared(task)
    classes = bool(getattr(getattr(task, "data", None), "classes", ()))
    if VOCABULARY not in depends_on(metric, known.get(metric), classes):
        return
    others = [name for name, one in known.items() if not depends_on(name, one, classes)]
    tuned = {key for point in plan.tune for key in point["overrides"]}
    tuned |= set(plan.search["space"]) if plan.search is not None else set()
    if keys := sorted(key for key in tuned if key.partition(".")[0] == VOCABULARY):
        raise UserError(
            f"select: {metric!r} depends on the vocabulary, which {keys[0]} tunes, so that the better"
            f" number need not be the better model; select by {' or '.join(others) or 'another score'},"
            " or compare vocabularies as variants"
        )


def _check_pruned(plan: Plan, task: Any) -> None:
    """Check that a trial is scored often enough during training, by the score that chooses
    candidates.
    """
    known = sorted({*task.evaluated} & {*getattr(task, "measures", {})})
    if plan.select["metric"] not in task.evaluated:
        raise UserError(
            "search.pruner needs a score that is known while a trial trains, not"
            f" {plan.select['metric']!r}; choose from: {', '.join(known)}"
        )
    steps, every = task.config.training.steps, task.config.training.evaluate_every
    if not every or 3 * every > steps:
        raise UserError(
            "search.pruner cuts a training at a third of its evaluations, and"
            f" training.evaluate_every={every} of {steps} steps makes fewer than three; set it to"
            f" {max(1, steps // 3)} or less"
        )
