"""Trials in numbers: the values of derived measures, which are the cost of a trial and when it
reached a score (for each, less is better); and `trials.csv`, one row a trial with its settings, all
its measures and its costs, for data frames.

A trial that failed, or never reached the score, has no value; the report says so and fills nothing
in.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attnlab.config.tree import differing, flat
from attnlab.experiments.define import is_derived, reached, text
from attnlab.experiments.plan import Candidate, Plan
from attnlab.experiments.report.collect import Record, Records
from attnlab.records.files import csv_text

HEAD = ("variant", "candidate", "seed", "state", "chosen", "steps")
COSTS: Mapping[str, Callable[[Record], float | None]] = {
    "step_seconds": lambda record: record.cost.step_seconds,
    "seconds": lambda record: record.effort.seconds / record.cost.most_together or None,
    "peak_bytes": lambda record: record.cost.peak_bytes,
    "parameters": lambda record: record.candidate.parameters,
    "flops": lambda record: record.candidate.flops,
}
"""What a trial cost, as far as it is recorded, however the trial ended."""
_OF_A_STEP: Mapping[str, Callable[[Record], float | None]] = {
    "steps_to": lambda record: 1,
    "seconds_to": COSTS["step_seconds"],
    "flops_to": COSTS["flops"],
}


def value(record: Record, split: str, metric: str) -> float | None:
    """Returns the value of a measure for a trial: its score on `split`, or, of a trial that is
    done, a derived measure (a cost, or the cost until its validation score reached a bound,
    whatever `split` is), or None if it has none.

    "seconds_to(...)" is the number of steps times the median seconds of a step: time spent
    training, without compiling, evaluating and pauses. If several trials trained as one program,
    each gets an equal share of its time.
    """
    if not is_derived(metric):
        return record.scores[split].get(metric)
    if record.seen.state != "done":
        return None
    wanted = reached(metric)
    if wanted is None:
        return COSTS[metric](record)
    valid = record.series("valid", wanted.metric)
    step = next((step for step, score in valid.items() if wanted.holds(score)), None)
    each = _OF_A_STEP[wanted.what](record)
    return None if step is None or each is None else step * each


def absent(metric: str) -> str:
    """Returns in words why a finished trial has no value of a derived measure: it is not recorded,
    or the score was never reached.
    """
    wanted = reached(metric)
    if wanted is None:
        return f"has no {metric} on record"
    return f"never reached {wanted.metric} {wanted.sign} {wanted.bound:g} on the validation split"


def side_by_side(records: Iterable[Record]) -> int:
    """Returns the largest number of trials that ran at the same time on one machine; 0 if none has
    begun.
    """
    spans = [span for record in records for span in record.logged.spans]
    starts = [(host, begin, 1) for host, begin, _ in spans]
    events = starts + [(host, end, -1) for host, _, end in spans]
    most, at_work = 0, dict.fromkeys((host for host, _, _ in events), 0)
    # at the same instant an end comes before a start
    for host, _, change in sorted(events, key=lambda event: event[1:]):
        at_work[host] += change
        most = max(most, at_work[host])
    return most


def as_wide_csv(records: Records) -> str:
    """Returns CSV (RFC 4180) with one row for every trial of the plan: its facts and steps, the
    settings in which candidates differ, all scores, derived measures and costs; numbers are not
    rounded, missing ones are empty.

    Columns: `HEAD`; the settings in which candidates differ; the scores of each split, "valid
    loss"; derived measures that the plan asks for; and the costs.
    """
    varied = varied_settings(records.plan)
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


def varied_settings(plan: Plan) -> dict[str, dict[str, Any]]:
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
