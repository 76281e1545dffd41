"""The power of a plan, before anything is trained."""

from attnlab.experiments.plan import Plan
from attnlab.experiments.report.statistics import ALPHA, CHANCE, detectable, spent


def foresight(plan: Plan) -> str:
    """Returns a sentence on the smallest difference to the baseline that the seeds of a plan can
    find, in standard deviations of a run (with one seed: that none can be found); "" for a single
    variant. It assumes one standard deviation for all variants, as in most sweeps, besides what all
    variants of a seed share.
    """
    variants, seeds = len(plan.variants), len(plan.seeds)
    if variants < 2:
        return ""
    alpha = spent(1, plan.looks) if plan.looks > 1 else ALPHA
    least = detectable(seeds, 1.0, variants - 1.0, variants - 1, alpha)
    if least is None:
        return "one seed tells nothing of how much runs spread, so no difference can be found"
    return (
        f"{seeds} seeds of {variants} variants find a difference to {plan.baseline} of {least:.1f}"
        f" standard deviations of a run with probability {CHANCE:g}"
        + (f", at the first of {plan.looks} looks" if plan.looks > 1 else "")
    )
