"""What a plan will be able to find, before anything is trained."""

from __future__ import annotations

from attnlab.experiments.plan import Plan
from attnlab.experiments.report.statistics import ALPHA, CHANCE, detectable, spent


def foresight(plan: Plan) -> str:
    """The smallest difference to the baseline that the seeds of a plan find; what kinds of runs
    spread how far nobody knows yet.

    For runs that spread alike in all variants, which is what most sweeps show.
    """
    variants, seeds = len(plan.variants), len(plan.seeds)
    if variants < 2:
        return ""
    alpha = spent(1, plan.looks) if plan.looks > 1 else ALPHA
    least = detectable(seeds, 1.0, float(variants), variants - 1, alpha)
    if least is None:
        return "one seed tells nothing of how much runs spread, so no difference can be found"
    return (
        f"{seeds} seeds of {variants} variants find a difference to {plan.baseline} of {least:.1f}"
        f" standard deviations of a run with probability {CHANCE:g}"
        + (f", at the first of {plan.looks} looks" if plan.looks > 1 else "")
    )
