"""How the tuned settings of each variant were found, and how much each of them mattered.

The importance of a setting is the share of the variance of the validation score, between the
settings tried for one variant, that the setting explains by itself: a one-way analysis of variance
over its values (a number with more than `GROUPS` values is cut into so many groups of equal size),
on ranks, so that one bad setting does not decide, and adjusted for the number of groups (epsilon
squared): with m settings tried, k groups, and sums of squares within the groups W and in all T, 1 -
(W / (m - k)) / (T / (m - 1)), at least 0. The rest is interactions of settings, and noise. Source:
main effects as in Hutter, Hoos and Leyton-Brown (2014), here of the settings tried and not of a
model of them; Kelley (1935).
"""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from attnlab.experiments.define import text
from attnlab.experiments.report.collect import Records
from attnlab.experiments.report.comparison import settings
from attnlab.pages.html import Figure, panels
from attnlab.pages.svg import Chart, Look
from attnlab.pages.tables import NONE, Table, number
from attnlab.records.measures import is_finite

LEAST, GROUPS = 8, 4
OPEN = 12  # panels that are not folded away


@dataclasses.dataclass(frozen=True)
class Tried:
    """One choice of the tuned settings of a variant.

    Attributes:
      number: from 1 in the order of the plan, which is the order of the search.
      tuned: the settings by name.
      score: mean over its seeds on validation; if it was stopped, the last one measured; None if
        there is none.
      stopped: it was pruned, so that the score is not a final one.
      chosen: for this variant.
    """

    number: int
    tuned: dict[str, Any]
    score: float | None
    stopped: bool
    chosen: bool


def tried(records: Records, variant: str) -> list[Tried]:
    """Returns a `Tried` for each combination of tuned settings that a variant has in the plan: its
    number from 1, the settings, its mean validation score (the last one if it was pruned, None
    without any), and whether it was pruned or chosen.
    """
    metric = records.plan.select["metric"]
    tries = []
    for place, candidate in enumerate(records.plan.of(variant)):
        trials = [run for run in records.of(candidate) if run.seed in records.tuning_seeds]
        final = [run.scores["valid"][metric] for run in trials if metric in run.scores["valid"]]
        stopped = not final and any(run.seen.word == "pruned" for run in trials)
        lasts = [score for run in trials for score in run.series("valid", metric).values()]
        score = statistics.fmean(final) if final else lasts[-1] if stopped and lasts else None
        chosen = records.chosen(candidate)
        tries.append(Tried(place + 1, dict(candidate.tuned), score, stopped, chosen))
    return tries


def searched(records: Records) -> dict[str, list[Tried]]:
    """Returns, by variant, the combinations of settings that were tried, for those variants of
    which at least three have a score.
    """
    every = {variant: tried(records, variant) for variant in records.plan.variants}
    scored = {name: [each for each in every[name] if each.score is not None] for name in every}
    return {variant: tries for variant, tries in every.items() if len(scored[variant]) > 2}


def search(
    records: Records, several: Mapping[str, list[Tried]], looks: Sequence[Look]
) -> Figure | None:
    """Returns the figure of the search, with a panel of validation scores by number of the setting
    tried for each variant of `several` (see `searched`), in its style of `looks`, or None if
    `several` is empty.
    """
    metric, mode = records.plan.select["metric"], records.plan.select["mode"]
    if not several:
        return None
    kinds = {look.name: look for look in looks}
    pictures = [
        _history(kinds.get(variant) or Look(-1 - place, variant, "base"), tries, metric, mode)
        for place, (variant, tries) in enumerate(several.items())
    ]
    better = "highest" if mode == "max" else "lowest"
    few = f"Of no variant {LEAST} settings were trained to the end, so that no importance of"
    few += " settings is given."
    stopped = any(trial.stopped for tries in several.values() for trial in tries)
    remarks = (
        f"A dot is a setting tried, in the order of the search; the line is the {better} {metric}"
        " so far, the ring the one chosen.",
        "A cross is one that was stopped early, at the last score it had." if stopped else "",
        few * (importances(several) is None),
    )
    return Figure("Search", panels(pictures, OPEN, "variants"), remarks)


def importances(every: Mapping[str, list[Tried]]) -> Table | None:
    """Returns a table of the importance of each tuned setting, one row for each variant of `every`
    (variant to its tries) with at least `LEAST` completed settings, or None if no variant has so
    many or nothing was tuned.
    """
    whole = {
        variant: [trial for trial in tries if trial.score is not None and not trial.stopped]
        for variant, tries in every.items()
    }
    whole = {variant: tries for variant, tries in whole.items() if len(tries) >= LEAST}
    choices = (trial.tuned for tries in whole.values() for trial in tries)
    names = list(dict.fromkeys(name for tuned in choices for name in tuned))
    if not names:
        return None
    rows = []
    for variant, tries in whole.items():
        scores = [trial.score or 0.0 for trial in tries]
        shares = [importance([trial.tuned.get(name) for trial in tries], scores) for name in names]
        cells = (NONE if share is None else f"{100 * share:.0f} %" for share in shares)
        rows.append((variant, f"{len(tries)}", *cells))
    share = (
        "The share of the variance of the validation score, between the settings tried for a"
        " variant, that one setting explains by itself: one-way analysis of variance on ranks,"
        f" numbers cut into {GROUPS} groups, adjusted for the number of groups (epsilon squared)."
    )
    rest = (
        "The rest is how settings act together, and noise. Settings that were only changed together"
        f" have the same share. Few settings give rough shares; below {LEAST} none is given."
    )
    short = [name.rpartition(".")[2] for name in names]
    columns = short if len(set(short)) == len(short) else names
    numbers = frozenset(range(1, len(names) + 2))
    heads = ("variant", "settings", *columns)
    return Table("Importance of tuned settings", heads, tuple(rows), numbers, notes=(share, rest))


def importance(values: Sequence[Any], scores: Sequence[float]) -> float | None:
    """Returns the share (0 to 1) of the variance of the ranks of `scores` that groups of `values`
    explain (epsilon squared, see above), or None if it is undefined.

    None if all values or all scores are equal, or if no group has two values.
    """
    import numpy as np
    from scipy import stats

    _, groups = np.unique(_groups(values), return_inverse=True)
    ranks, n = stats.rankdata(scores), len(values)
    if not 0 < groups.max() < n - 1 or len(set(ranks.tolist())) == 1:
        return None
    each = [ranks[groups == group] for group in range(groups.max() + 1)]
    within = sum(mine.var() * len(mine) for mine in each) / (n - len(each))
    return max(0.0, float(1 - within / ranks.var(ddof=1)))


def _groups(values: Sequence[Any]) -> list[str]:
    """Returns the group of each value as text: the value itself, or its quantile group if all
    values are finite numbers and more than `GROUPS` of them differ.
    """
    if len(set(map(text, values))) > GROUPS and all(map(is_finite, values)):
        from scipy import stats

        ranks = stats.rankdata([float(value) for value in values])
        return [str(min(GROUPS - 1, int(GROUPS * (rank - 0.5) / len(values)))) for rank in ranks]
    return [text(value) for value in values]


def _history(look: Look, tries: Sequence[Tried], metric: str, mode: str) -> str:
    """Returns an SVG chart of a variant's validation scores by trial, with a line of the best so
    far, crosses for pruned trials and a ring around the chosen one.
    """
    scored = [(trial, trial.score) for trial in tries if trial.score is not None]
    numbers, scores = [trial.number for trial, _ in scored], [score for _, score in scored]
    chart = Chart(look.name, numbers, scores, x_label="setting tried", y_label=metric, x_log=False)
    best: list[tuple[float, float]] = []
    for trial, score in scored:
        if not trial.stopped:
            now = score if not best else (max if mode == "max" else min)(best[-1][1], score)
            best += [*([(trial.number, best[-1][1])] if best else []), (trial.number, now)]
    line = chart.line([*best, (scored[-1][0].number, best[-1][1])] if best else [])
    chart.group(look, f"{look.name}: best so far", [line])
    for trial, score in scored:
        place = (float(trial.number), score)
        mark = chart.cross(place) if trial.stopped else chart.dot(place)
        ring = chart.dot(place, "ring", 6.0) if trial.chosen else ""
        when = " when stopped" * trial.stopped
        label = f"{trial.number}: {metric} {number(score)}{when}, {settings(trial.tuned)}"
        chart.group(look, label, [mark, ring])
    return chart.text
