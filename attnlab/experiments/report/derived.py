"""The values of derived measures: the cost of a trial, and when it reached a score. For each, less
is better.

A trial that failed, or never reached the score, has no value; the report says so and fills nothing
in.
"""

from collections.abc import Callable, Iterable, Mapping

from attnlab.experiments.define import is_derived, reached
from attnlab.experiments.report.collect import Record

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
