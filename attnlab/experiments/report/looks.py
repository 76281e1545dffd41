"""Looks at the test split: how often it was used, what was added after its scores were known, and
the level of the present look.

If there is no difference, one look errs with probability 0.05. Adding seeds and testing again until
something is found errs more often, unless the number of looks was planned (`Experiment.looks`):
then every look has its own level, see `spent`.
"""

import contextlib
import datetime
import math
from collections.abc import Iterator

from attnlab.experiments.report.collect import Records
from attnlab.experiments.report.environment import version
from attnlab.experiments.report.statistics.planned import spent

ALPHA = 0.05


def level(records: Records) -> float:
    """Returns the significance level of the present look at the test split: 0.05, or its level in
    the plan if several looks were planned. A look beyond the planned ones has the level of the
    last.
    """
    planned = records.plan.looks
    return spent(min(max(len(stages(records)), 1), planned), planned) if planned > 1 else ALPHA


def stages(records: Records) -> list[tuple[int, ...]]:
    """Returns a list with the seeds of each look at the test split, a tuple, in order, equal ones
    once; a plan with further seeds is a further look.
    """
    tests = (look for look in records.looks if look["event"] == "test")
    return list(dict.fromkeys(tuple(look["seeds"]) for look in tests))


def sentences(records: Records) -> Iterator[str]:
    """Yields notes for the report on looks at the test split: variants or seeds that were added
    after the first look, more looks than planned, or the level of a planned look.
    """
    planned, judged = records.plan.looks, stages(records)
    added = _added(records)
    since = f"were added after the test split was first read ({first_look(records)})."
    for what, names in added.items():
        yield f"{what} {', '.join(names)} {since}"
    if len(judged) > planned:
        seeds = "; then ".join(", ".join(map(str, stage)) for stage in judged)
        wanted = f"{planned} was planned" if planned == 1 else f"{planned} were planned"
        yield (
            f"The test split was judged {len(judged)} times, with seeds {seeds}, and {wanted}: a"
            " chance finding is likelier than 5 %. Looks planned ahead (looks=2 in the experiment)"
            " keep it there."
        )
    elif planned > 1 and judged:
        yield (
            f"Look {len(judged)} of {planned} that were planned: tested at a level of"
            f" {level(records):.3g} in place of {ALPHA:g}."
        )


def first_look(records: Records) -> str | None:
    """Returns when the test split was first read, None if never; when the choice was made, in
    sweeps of version 1 that kept no looks.
    """
    if records.plan.version > 1 or (records.looks and records.looks[0]["event"] == "choice"):
        return next((look["time"] for look in records.looks if look["event"] == "test"), None)
    scored = any(record.scores["test"] for record in records.trials)
    return records.choice.made if scored and records.choice is not None else None


def _added(records: Records) -> dict[str, list[str]]:
    """Returns, by "Variants" and "Seeds", the names of the variants whose reported trials all began
    after the first look at the test split, and the seeds for which this holds within the other
    variants; a key without names is left out.
    """
    first = math.inf  # where nobody has looked, or a record has no time
    with contextlib.suppress(ValueError):
        first = datetime.datetime.fromisoformat(first_look(records) or "").timestamp()
    reported = [
        (run.candidate.variant, str(run.seed), began)
        for run in records.wanted
        if (began := run.effort.began) is not None
    ]
    early = {variant for variant, _, time in reported if time <= first}
    variants = [name for name in dict.fromkeys(trial[0] for trial in reported) if name not in early]
    others = [trial for trial in reported if trial[0] in early]
    early = {seed for _, seed, time in others if time <= first}
    seeds = [seed for seed in dict.fromkeys(trial[1] for trial in others) if seed not in early]
    return {what: names for what, names in (("Variants", variants), ("Seeds", seeds)) if names}


def versions(records: Records) -> list[str]:
    """The versions of the code that have read the test split, in words."""
    tests = [look["code"] for look in records.looks if look["event"] == "test" and look["code"]]
    return list(dict.fromkeys(map(version, tests)))
