"""The validation scores of a sweep while it runs: of the running trials, and the best of every
variant so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run.selection import validation_score
from attnlab.experiments.run.state import Seen
from attnlab.progress import clock
from attnlab.records.locks import holder
from attnlab.records.stream import Measured, read_records

Rows = tuple[list[str], list[list[str | float | None]]]


def running(plan: Plan, directory: Path, seen: Sequence[Seen], now: float) -> Rows:
    """Columns and rows of the running trials: step, latest selection metric, time of the last
    record, and who runs them.
    """
    metric = plan.select["metric"]
    rows: list[list[str | float | None]] = []
    for status in seen:
        if status.state == "running":
            trial = status.trial
            measured = _measured(trial, directory, metric)
            step, value = measured[-1] if measured else (None, None)
            age = status.age(now)
            heard = (
                "-"
                if age is None
                else f"{clock(age)} ago" + (", stalled" if status.stalled(now) else "")
            )
            steps = f"{status.step}/{status.total}"
            rows.append([trial.name, steps, value, step, heard, holder(trial.workdir(directory))])
    return ["trial", "step", f"{metric}, validation", "at step", "last heard of", "by"], rows


def best(plan: Plan, directory: Path, seen: Sequence[Seen]) -> Rows:
    """Columns and rows of the best trial of every variant so far, in single seeds: how good, where,
    how many of its trials are done.

    No rows while nothing has been measured. Of a trial that is done it is the score that the choice
    goes by, of another one the best that it has measured.
    """
    metric, sign = plan.select["metric"], 1 if plan.select["mode"] == "min" else -1
    rows: list[list[str | float | None]] = []
    for variant in plan.variants:
        statuses = [status for status in seen if status.trial.candidate.variant == variant]
        scores = [
            (sign * score, status.trial.name)
            for status in statuses
            for score in _scores(status, directory, metric)
        ]
        value, name = min(scores, default=(None, "-"))
        done = f"{sum(status.state == 'done' for status in statuses)}/{len(statuses)}"
        rows.append([variant, None if value is None else sign * value, name, done])
    return ["variant", f"{metric}, validation", "trial", "done"], (
        rows if any(row[1] is not None for row in rows) else []
    )


def _scores(seen: Seen, directory: Path, metric: str) -> list[float]:
    """The validation scores of a trial: the final one if it is done, else all measured so far."""
    if seen.state == "done":
        score = validation_score(seen.trial, directory, metric)
        return [] if score is None else [score]
    return [value for _, value in _measured(seen.trial, directory, metric)] if seen.attempts else []


def _measured(trial: Trial, directory: Path, metric: str) -> list[tuple[int, float]]:
    """Step and value of a metric at the validations of a trial; those that are not finite are
    left out.
    """
    records = read_records(trial.workdir(directory) / "metrics.jsonl", Measured)
    points = [
        (record["step"], record[metric])
        for record in records
        if record["split"] == "valid" and metric in record
    ]
    return [
        (step, float(value))
        for step, value in points
        if isinstance(value, (int, float)) and math.isfinite(value)
    ]
