"""A report for programs: `report.json` (everything by name) and `report.csv` (one number a
line).
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from attnlab.experiments.report.collect import Record
from attnlab.experiments.report.comparison import Row
from attnlab.experiments.report.contents import Contents
from attnlab.experiments.report.equality import differing
from attnlab.experiments.report.looks import stages
from attnlab.experiments.report.totals import taken
from attnlab.records.files import csv_text

HEAD = ("variant", "candidate", "seed", "split", "metric", "value")
# fields of the plan that the JSON repeats
STATED = (
    "name",
    "file",
    "question",
    "config",
    "seeds",
    "baseline",
    "select",
    "measure",
    "budget",
    "claim",
    "search",
    "hash",
)
ALL = "all"  # in place of a seed: a figure over all of them


def as_json(contents: Contents) -> str:
    """Returns the report as the text of one JSON object (with the fields "rows", "verdict",
    "trials" and many others); a value that does not exist is null, and a number that is infinite or
    NaN is a text.
    """
    records, comparison = contents.records, contents.comparison
    plan = records.plan
    whole = {
        "warnings": [warning._asdict() for warning in contents.warnings],
        **{field: getattr(plan, field) for field in STATED},
        "complete": records.complete,
        "basis": dataclasses.asdict(comparison.basis),
        "intervals": {
            "method": comparison.method,
            "level": 0.95,
            "difference_level": 1 - comparison.alpha,
        },
        "alpha": comparison.alpha,
        "looks": {"planned": plan.looks, "judged": stages(records), "records": records.looks},
        "differing": [dataclasses.asdict(setting) for setting in differing(records)],
        "rows": [_row(row) for row in comparison.rows],
        "effects": [dataclasses.asdict(effect) for effect in contents.effects],
        "verdict": (
            contents.verdict
            and {**dataclasses.asdict(contents.verdict), "sentence": contents.outcome}
        ),
        "choice": records.choice and records.choice.chosen,
        "trials": [_trial(record) for record in records.trials],
        "environment": dataclasses.asdict(contents.environment),
    }
    return json.dumps(_strict(whole), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _trial(record: Record) -> dict[str, Any]:
    """Returns the JSON object of a trial: its name, variant, seed, state, step, message, number of
    attempts, costs, effort, digests of data, and scores by split.
    """
    seen = record.seen
    return {
        "trial": seen.trial.name,
        "variant": record.candidate.variant,
        "seed": record.seed,
        "state": seen.word,
        "step": seen.step,
        "message": seen.message,
        "attempts": seen.attempts,
        **dataclasses.asdict(record.cost),
        "effort": dataclasses.asdict(record.effort),
        "data": record.data,
        "scores": record.scores,
    }


def as_csv(contents: Contents) -> str:
    """Returns `report.csv` as text, with the columns `HEAD`: a line for every score of every trial,
    then for each statistic and cost of each row of the comparison.
    """
    return csv_text([HEAD, *_score_lines(contents), *_statistic_lines(contents)], "\n")


def _strict(value: Any) -> Any:
    """Returns `value` with numbers that JSON lacks (infinite, NaN) replaced by texts, and tuples by
    lists, at any depth.
    """
    if isinstance(value, Mapping):
        return {key: _strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(inner) for inner in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def _row(row: Row) -> dict[str, Any]:
    """Returns the JSON object of a row of the comparison: names, overrides, values by seed,
    summary, difference to the baseline, whether it is best, outlying and missing seeds, the work on
    it, costs and budget.
    """
    candidate = row.candidate
    return {
        "name": row.name,
        "variant": candidate.variant,
        "candidate": candidate.id,
        "overrides": candidate.overrides,
        "values": row.values,
        **dataclasses.asdict(row.summary),
        "difference": row.difference and {"n": row.shared, **dataclasses.asdict(row.difference)},
        "outlying": row.outlying,
        "best": row.best,
        "missing": row.missing,
        "taken": dataclasses.asdict(taken(row.records)),
        **_costs(row),
        "budget": candidate.budget,
    }


def _score_lines(contents: Contents) -> Iterator[tuple[Any, ...]]:
    """Yields the lines of `report.csv` for every score of every trial."""
    for record in contents.records.trials:
        trial = (record.candidate.variant, record.candidate.id, record.seed)
        for split, scores in record.scores.items():
            yield from ((*trial, split, metric, repr(value)) for metric, value in scores.items())


def _statistic_lines(contents: Contents) -> Iterator[tuple[Any, ...]]:
    """Yields a line of `report.csv` (variant, candidate, `ALL` in place of a seed, split, measure,
    value as text) for each statistic and cost of the comparison's rows that has a value.
    """
    basis = contents.comparison.basis
    for row in contents.comparison.rows:
        for metric, value in _named(row, basis.metric):
            if value is not None:
                yield row.candidate.variant, row.candidate.id, ALL, basis.split, metric, repr(value)


def _named(row: Row, metric: str) -> Iterator[tuple[str, float | None]]:
    """Yields the name and the value (None if missing) of each statistic of a row, named "`metric`
    mean" and so on (n, mean, spread, interval, difference to the baseline if it has one), and of
    each of its costs.
    """
    summary, difference = row.summary, row.difference
    low, high = summary.interval or (None, None)
    figures: dict[str, float | None] = {" n": summary.n, " mean": summary.mean}
    figures |= {" std": summary.std, " low": low, " high": high}
    if difference is not None:
        low, high = difference.interval or (None, None)
        figures |= {" difference n": row.shared, " difference": difference.mean}
        figures |= {" difference low": low, " difference high": high}
        figures |= {" adjusted p": difference.p, " effect size": difference.effect}
    yield from ((f"{metric}{name}", value) for name, value in figures.items())
    yield from _costs(row).items()


def _costs(row: Row) -> dict[str, float | None]:
    """Returns the costs of a row by name: parameters, FLOPs and transcendentals of a step, median
    seconds of a step and peak memory in bytes, both with the number of trials trained together, or
    None where a cost is unknown.
    """
    (seconds, together), (peak, most) = row.pace, row.peak
    return {
        "parameters": row.candidate.parameters,
        "flops": row.candidate.flops,
        "transcendentals": row.candidate.counted.transcendentals,
        "step_seconds": seconds,
        "together": together,
        "peak_bytes": peak,
        "most_together": most,
    }
