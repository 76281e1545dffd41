"""Notes to the table of results: how its intervals were computed, the power of the seeds, also
before anything is trained, the sources of times and costs.
"""

from attnlab.experiments.define import is_timed, several
from attnlab.experiments.plan import Plan
from attnlab.experiments.report.collect import Records
from attnlab.experiments.report.comparison import Comparison
from attnlab.experiments.report.equality import differing
from attnlab.experiments.report.statistics.family import ALPHA
from attnlab.experiments.report.statistics.planned import CHANCE, Dunnett, spent
from attnlab.experiments.report.trials import asked, side_by_side
from attnlab.pages.tables import NONE


def score_notes(records: Records, comparison: Comparison) -> tuple[str, ...]:
    """Returns the notes under the table of results: the method of the intervals; on the test split
    that of the differences, why no variant is best and the power of the seeds, else that it has not
    been read; and, if a measure is a time, how reliable it is.
    """
    plan = records.plan
    notes = [f"Intervals: 95 %, over seeds, {_interval_method(comparison)}"]
    if comparison.basis.split == "test":
        notes.append(
            f"Differences: to {plan.baseline}, by Dunnett's test: its intervals hold together, at"
            f" {100 * (1 - comparison.alpha):.4g} %, and one that leaves out 0 is one with an"
            f" adjusted p below {comparison.alpha:.3g}. Effect size: Hedges' g, in standard"
            f" deviations of one run{_without_size(comparison)}."
        )
        notes += _no_best(comparison) if len(plan.seeds) > 1 else []
        notes += _could_find(comparison, plan.baseline)
    else:
        notes.append(
            "The test split has not been read: these are validation scores, for following the work"
            " and not for comparing."
        )
    return (*notes, *_time_notes(records, comparison))


def _without_size(comparison: Comparison) -> str:
    """Returns in words why differences with an interval have no effect size; "" if all have one."""
    gaps = [row.difference for row in comparison.rows if row.difference]
    bare = any(gap.interval and gap.effect is None for gap in gaps)
    return f'; "{NONE}": fewer than two degrees of freedom tell that deviation' * bare


def _time_notes(records: Records, comparison: Comparison) -> list[str]:
    """Returns a note on how many trials ran side by side on a machine, if the plan's measures
    depend on times; [] otherwise.
    """
    names = dict.fromkeys((comparison.basis.metric, *asked(records.plan)))
    timed = [name for name in names if is_timed(name)]
    if not timed:
        return []
    most = side_by_side(records.trials)
    if most < 2:
        alone = "the trials of this sweep ran one at a time on their machine"
        return [f"Times ({', '.join(timed)}): {alone}."]
    return [
        f"Times ({', '.join(timed)}) are noisy: up to {most} trials of this sweep were at work side"
        " by side on one machine and slowed one another. To compare times, run the sweep with"
        " --slots=1 on a machine that does nothing else."
    ]


def _interval_method(comparison: Comparison) -> str:
    """Returns in words how the intervals of means were computed: bootstrap or model, shared
    variance, seeds as a block, bounds of the measure.
    """
    if comparison.method == "bootstrap":
        return "each by bootstrap (BCa, 9999 resamples; too narrow for fewer than about ten seeds)."
    rows = comparison.rows
    of_examples = "one spread, in units of that of drawing the test examples,"
    spread = of_examples if comparison.basis.scale.count else "one variance"
    kind = f"with {spread} for all variants, and no block, for too few seeds are shared"
    if comparison.family.model.kind == "blocked":
        kind = f"with {spread} for all variants, and the seed as a block, for they share seeds"
    for name in ("mean", "difference"):
        judged = {row.name: row.summary if name == "mean" else row.difference for row in rows}
        if noisy := [variant for variant, each in judged.items() if each and each.own]:
            kind += (
                f"; the {name} of {several(noisy)} varies more over the seeds than that allows and"
                " is judged by its own spread too"
            )
    scale = comparison.basis.scale
    inside = " They stay within the bounds of the measure." if scale.bounded else ""
    counted = (
        f" It is a share of {scale.count:,}: no variance is smaller than that of drawing so many."
        if scale.count
        else ""
    )
    return f"{kind}; none where nothing gives a variance.{inside}{counted}"


def _no_best(comparison: Comparison) -> list[str]:
    """Returns a note on why no variant is marked as the best; [] if one is, or there are fewer than
    two rows.
    """
    if len(comparison.rows) < 2 or any(row.best for row in comparison.rows):
        return []
    why = f": none is ahead of all others by Tukey's test of all pairs at {comparison.alpha:.3g}."
    if comparison.apart.other:
        why = ", because not every row was scored on the same test examples."
    elif any(row.missing for row in comparison.rows):
        why = ", because not every row has every seed."
    return [f"No best variant is marked{why}"]


def _could_find(comparison: Comparison, baseline: str) -> list[str]:
    """Returns a note on the difference that these seeds can find, if any difference is undecided;
    [] otherwise.
    """
    differences = {row.name: row.difference for row in comparison.rows if row.difference}
    tested = {name: gap.p for name, gap in differences.items() if gap.p is not None}
    if all(p < comparison.alpha for p in tested.values()):
        return []
    least = [comparison.family.detectable(name, baseline) for name in tested]
    gaps = [gap for gap in least if gap is not None]
    with_these = f"With these seeds a difference of {max(gaps, default=0.0):.2g} is found"
    return [f"{with_these} with probability {CHANCE:g}."] * bool(gaps)


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
    least = Dunnett(1.0, variants - 1.0, variants - 1, alpha).detectable(seeds)
    if least is None:
        return "one seed tells nothing of how much runs spread, so no difference can be found"
    return (
        f"{seeds} seeds of {variants} variants find a difference to {plan.baseline} of {least:.1f}"
        f" standard deviations of a run with probability {CHANCE:g}"
        + (f", at the first of {plan.looks} looks" if plan.looks > 1 else "")
    )


def cost_notes(records: Records) -> list[str]:
    """Returns the notes on costs as a list: how FLOPs, times and memory were measured, how many
    trials stopped early, what transcendentals are, and whether budgets were held equal, by which
    settings, and why not matched; each where it applies.
    """
    notes = [
        "FLOPs: XLA's count of one training step as lowered for the CPU, before it is optimised,"
        " loops counted in full, on a batch of mean size. ms per step: median, as timed in this"
        " sweep beside its other trials. Peak memory: of the process, on the host."
    ]
    plan = records.plan
    done = [record.seen for record in records.trials if record.seen.state == "done"]
    if used := sorted(seen.step for seen in done if seen.step < seen.total):
        notes.append(
            f"Stopped early (training.stop): {len(used)} of {len(done)} trials, after {used[0]:,} to"
            f" {used[-1]:,} updates. Matched is the most that trials may have, not what they used."
        )
    if any(candidate.counted.transcendentals is not None for candidate in plan.candidates):
        kinds = "exponentials, logarithms, tanh, roots and the like of one step"
        notes.append(f"Transcendentals: {kinds}, one an element; they are no FLOPs.")
    if plan.budget is None:
        sizes = [candidate.parameters for candidate in plan.candidates]
        least = min(sizes, default=0)
        wide = max(sizes) / least - 1 if least else 0.0
        differ = f": parameters differ by up to {100 * wide:.3g} %" if wide >= 0.0005 else ""
        return [*notes, f"Budgets were not held equal{differ}."]
    held = {"parameters": "parameters", "flops": "FLOPs per step"}[plan.budget["match"]]
    knobs = ", ".join(
        dict.fromkeys(candidate.budget["knob"] for candidate in plan.candidates if candidate.budget)
    )
    unequal = [setting.name for setting in differing(records) if setting.kind == "unequal"]
    besides = f" Not held equal: {several(unequal)}." if unequal else ""
    notes.append(
        f"Budget: {held} held to those of {plan.budget['to'] or plan.baseline} by {knobs}.{besides}"
    )
    # why a budget could not be matched
    met = [(candidate.variant, candidate.budget) for candidate in plan.candidates]
    short_of = (f"{name}: {budget['note']}." for name, budget in met if budget and budget["note"])
    return [*notes, *dict.fromkeys(short_of)]
