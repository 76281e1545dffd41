"""`trials.csv`: one row a trial with its settings, all its measures and its costs, for data frames."""

from collections.abc import Mapping
from typing import Any

from attnlab.config.tree import differing, flat
from attnlab.experiments.define import is_derived, text
from attnlab.experiments.plan import Candidate, Plan
from attnlab.experiments.report.collect import Record, Records
from attnlab.experiments.report.derived import COSTS, value
from attnlab.records.files import csv_text

HEAD = ("variant", "candidate", "seed", "state", "chosen", "steps")


def as_wide_csv(records: Records) -> str:
    """Returns CSV (RFC 4180) with one row for every trial of the plan: its facts and steps, the
    settings in which candidates differ, all scores, derived measures and costs; numbers are not
    rounded, missing ones are empty.

    Columns: `HEAD`; the settings in which candidates differ; the scores of each split, "valid
    loss"; derived measures that the plan asks for; and the costs.
    """
    varied = settings_that_differ(records.plan)
    measured = dict.fromkeys(
        (split, name)
        for record in records.trials
        for split, scores in record.scores.items()
        for name in scores
    )
    derived = derived_measures(records.plan)
    names = list(dict.fromkeys(name for values in varied.values() for name in values))
    heads = [*HEAD, *names, *(f"{split} {name}" for split, name in measured), *derived, *COSTS]
    rows: list[list[Any]] = [heads]
    for record in records.trials:
        scores = (record.scores[split].get(name) for split, name in measured)
        taken = (value(record, "valid", name) for name in derived)
        numbers = (*scores, *taken, *(cost(record) for cost in COSTS.values()))
        settings = varied[record.candidate.id]
        rows.append(
            [
                *facts(records, record).values(),
                record.seen.step,
                *(text(settings[name]) if name in settings else "" for name in names),
                *("" if number is None else repr(number) for number in numbers),
            ]
        )
    return csv_text(rows)


def settings_that_differ(plan: Plan) -> dict[str, dict[str, Any]]:
    """Returns, by candidate, the values of the settings in which candidates differ, by full dotted
    name; a candidate has only those that its config has.
    """
    configs = {candidate.id: settings(candidate) for candidate in plan.candidates}
    varied = differing(*configs.values(), text=repr)
    return {
        identity: {name: values[name] for name in varied if name in values}
        for identity, values in configs.items()
    }


def settings(candidate: Candidate) -> dict[str, Any]:
    """Returns all settings of a candidate but the seed, by full dotted name; the value of a
    component is its name.
    """
    config: Mapping[str, Any] = candidate.config
    return {key.removesuffix(".name"): leaf for key, leaf in flat(config).items() if key != "seed"}


def asked(plan: Plan) -> list[str]:
    """The derived measures that an experiment speaks of."""
    claimed = [contrast.get("on", "") for contrast in plan.claim["contrasts"]] if plan.claim else []
    return [name for name in dict.fromkeys((plan.measure["metric"], *claimed)) if is_derived(name)]


def derived_measures(plan: Plan) -> list[str]:
    """Those of `asked` that are no costs of a trial."""
    return [name for name in asked(plan) if name not in COSTS]


def facts(records: Records, run: Record) -> dict[str, Any]:
    """Returns the first columns of a trial's row by the names of `HEAD` without "steps": variant,
    candidate, seed, state, and whether its candidate is chosen ("yes" or "no").
    """
    return {
        "variant": run.candidate.variant,
        "candidate": run.candidate.id,
        "seed": run.seed,
        "state": run.seen.word,
        "chosen": "yes" if records.chosen(run.candidate) else "no",
    }
