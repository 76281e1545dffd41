"""A trial in the form for trackers: an id, settings, curves by step, final numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from attnlab.errors import UserError
from attnlab.experiments.report.collect import Record, Records
from attnlab.experiments.report.derived import COSTS, value
from attnlab.experiments.report.wide import derived_measures, facts, settings_that_differ


@dataclasses.dataclass(frozen=True)
class Point:
    """What was recorded of one step.

    Attributes:
      step: updates done.
      time: about when, seconds since 1970: the start and so many median steps.
      values: "valid/loss" to number, also those that are not finite.
    """

    step: int
    time: float
    values: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Tracked:
    """A trial as a run.

    Attributes:
      id: 16 hex digits, of the sweep's name, when it was planned first, and the trial.
      group: the sweep.
      facts: "variant", "candidate", "seed", "chosen" ("yes" or "no"), "state", "trial".
      config: the whole resolved config, nested.
      varied: settings in which candidates of the sweep differ, by full name.
      curve: by step.
      final: "final/test/exact", "cost/seconds" to number.
      began, ended: seconds since 1970; 0.0 where nobody wrote it down.
    """

    id: str
    group: str
    facts: Mapping[str, Any]
    config: Mapping[str, Any]
    varied: Mapping[str, Any]
    curve: tuple[Point, ...]
    final: Mapping[str, float]
    began: float
    ended: float

    @property
    def digest(self) -> str:
        """A digest that changes if the run changes, to compare with an earlier export."""
        return _hash(dataclasses.asdict(self), 32)


class Tracker(Protocol):
    """Writes runs for one tracker.

    Attributes:
      hint: a line on how to look at them.
    """

    hint: str

    def held(self) -> Mapping[str, str]:
        """Id to digest of what is there; "" for what is half written."""

    def remove(self, identity: str) -> None:
        """Take away all that is there of a run."""

    def write(self, run: Tracked) -> None:
        """Write a run that is not there; its digest last."""


def tracked(records: Records) -> list[Tracked]:
    """Returns the trials of a sweep that have begun, in order, as runs for a tracker."""
    plan, varied = records.plan, settings_that_differ(records.plan)
    sweep = _hash([plan.name, plan.created], 6)
    group = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', plan.name)[:80]}-{sweep}"
    begun = (record for record in records.trials if record.seen.state != "pending")
    return [_run(records, record, group, varied[record.candidate.id]) for record in begun]


def needed(module: str, tracker: str) -> Any:
    """Imports the package `module` of a tracker and returns it; raises UserError, with the extra to
    install, if it is absent.

    Raises:
      UserError: it is not installed; a folder of that name, which trackers leave, is no package.
    """
    try:
        package = importlib.import_module(module)
    except ImportError as error:
        raise _absent(tracker, module) from error
    if getattr(package, "__file__", None) is None and not getattr(package, "__version__", None):
        raise _absent(tracker, module)
    return package


def _absent(tracker: str, module: str) -> UserError:
    return UserError(f"export --to={tracker} needs {module}: pip install 'attnlab[{tracker}]'")


def _run(records: Records, record: Record, group: str, varied: Mapping[str, Any]) -> Tracked:
    """Returns a trial as a run for a tracker: an id, facts, config, the curve, final scores and
    costs, and times of begin and end.
    """
    trial = record.seen.trial
    began = min((begin for _, begin, _ in record.logged.spans), default=0.0)
    ended = max((end for _, _, end in record.logged.spans), default=0.0)
    final = {
        f"final/{split}/{name}": number
        for split, scores in record.scores.items()
        for name, number in scores.items()
    }
    derived = {
        f"final/{name}": value(record, "valid", name) for name in derived_measures(records.plan)
    }
    costs = {f"cost/{name}": cost(record) for name, cost in COSTS.items()}
    final |= {
        name: float(number) for name, number in (derived | costs).items() if number is not None
    }
    identity = _hash([records.plan.name, records.plan.created, trial.name], 16)
    about = {**facts(records, record), "trial": trial.name}
    return Tracked(
        identity, group, about, trial.config, varied, _curve(record, began), final, began, ended
    )


def _curve(record: Record, began: float) -> tuple[Point, ...]:
    """Returns a trial's learning curve as one point for each logged step, in order, with the
    numbers of all splits as "split/name" and an estimated time.
    """
    pace = record.cost.step_seconds or 0.0
    steps: dict[int, dict[str, float]] = {}
    for point in record.logged.curve:
        numbers = {
            name: float(number)
            for name, number in point.items()
            if _is_number(number) and name != "step"
        }
        steps.setdefault(point["step"], {}).update(
            {f"{point['split']}/{name}": number for name, number in numbers.items()}
        )
    return tuple(Point(step, began + step * pace, steps[step]) for step in sorted(steps))


def _is_number(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool)


def _hash(content: Any, digits: int) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:digits]


def folder(out: Path) -> Path:
    """Makes a folder where it is absent, and returns it."""
    out.mkdir(parents=True, exist_ok=True)
    return out


def pieces(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """The items in order, at most `size` at a time."""
    return [items[start : start + size] for start in range(0, len(items), size)]
