"""The table of what was tuned: every setting that was tried for each variant on the validation
split, and what was chosen.
"""

from attnlab.experiments.report.collect import Records
from attnlab.experiments.report.comparison import scale, scores, settings
from attnlab.experiments.report.statistics.family import Family
from attnlab.experiments.run import counts
from attnlab.pages.tables import Table, interval, number


def tried(records: Records, method: str) -> Table | None:
    """Returns a table of all tuned settings of each variant with mean and interval on the
    validation split, the chosen ones marked, or None if nothing was tuned.
    """
    plan, metric = records.plan, records.plan.select["metric"]
    if all(len(plan.of(variant)) < 2 for variant in plan.variants):
        return None
    values = {}
    for candidate in plan.candidates:
        runs = [run for run in records.of(candidate) if run.seed in records.tuning_seeds]
        values[candidate.id] = scores(runs, "valid", metric)
    family = Family(values, plan.select["mode"], scale(records.trials, "valid", metric))
    rows: list[tuple[str, ...]] = []
    strong: set[int] = set()
    for candidate in (candidate for variant in plan.variants for candidate in plan.of(variant)):
        chosen = records.chosen(candidate)
        strong |= {len(rows)} if chosen else set()
        summary = family.mean(candidate.id, method)
        means = (f"{summary.n}", number(summary.mean), interval(summary.interval))
        what = (candidate.variant, settings(candidate.tuned))
        rows.append((*what, *means, "chosen" * chosen))
    columns = ("variant", "settings", "n", f"{metric}, validation", "95 % interval", "")
    notes = (_how_many(records), *_lost_settings(records))
    title, numbers = "Tuning, on the validation split", frozenset((2, 3, 4))
    return Table(title, columns, tuple(rows), numbers, frozenset(strong), notes=notes)


def _how_many(records: Records) -> str:
    """Returns a note on how many settings were tried for each variant and, for a search, its
    sampler and pruner and what became of them.
    """
    plan = records.plan
    tried = {len(plan.of(variant)) for variant in plan.variants}
    number = f"{tried.pop()}" if len(tried) == 1 else "NOT the same number of"
    note = f"Each variant had {number} settings tried."
    if plan.search is not None:
        named = {name: plan.search.get(name) for name in ("sampler", "trials", "pruner")}
        options = settings({name: value for name, value in named.items() if value})
        note += (
            f" They were searched for ({options}) with the first seed; the best of each variant was"
            " trained with all. Of them, "
        )
        note += "; ".join(_searched(records, variant) for variant in plan.variants) + "."
    return note


def _lost_settings(records: Records) -> list[str]:
    """Returns a note for each variant that was chosen without some of its trials, which had failed
    or were stopped.
    """
    notes = []
    for variant, entry in records.choice.chosen.items() if records.choice is not None else ():
        if accepted := entry.get("accepted"):
            without = ", ".join(f"{name} ({why})" for name, why in accepted.items())
            trained = f"{entry.get('trained')} of {entry.get('settings')} settings trained"
            notes.append(f"{variant}: {trained}; chosen without {without}.")
    return notes


def _searched(records: Records, variant: str) -> str:
    """Returns in words the states and the steps of the trials that a search made for a variant:
    "additive: 4 done, 12 pruned, 3,400 steps".
    """
    statuses = [
        record.seen
        for record in records.trials
        if record.candidate.variant == variant and record.seed == records.plan.seeds[0]
    ]
    states = [f"{number} {state}" for state, number in counts(statuses).items()]
    return f"{variant}: {', '.join([*states, f'{sum(seen.step for seen in statuses):,} steps'])}"
