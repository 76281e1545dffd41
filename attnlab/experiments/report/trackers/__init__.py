"""The records of a sweep, or of one run, as runs of other trackers: afterwards (`export`), on disk
and without a network, or while they are written (`following.py`).

Every trial that has begun is a run: an id, settings, curves by step, final numbers (`Tracked`). Its
id depends only on the sweep and the trial, so a repeated export adds new runs, rewrites changed
ones, and leaves the rest alone.
"""

import dataclasses
import hashlib
import importlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.report.collect import Record, Records, Timing, collect, cost, read_scores
from attnlab.experiments.report.trials import COSTS, derived_measures, facts, value, varied_settings
from attnlab.records import attempts, tracking
from attnlab.records.locks import is_held
from attnlab.records.manifest import Manifest
from attnlab.records.stream import Measured, read_records

TRACKERS: Mapping[str, str] = {
    "wandb": "attnlab.experiments.report.trackers.wandb_offline",
    "mlflow": "attnlab.experiments.report.trackers.mlflow_store",
    "trackio": "attnlab.experiments.report.trackers.trackio_store",
    "tensorboard": "attnlab.experiments.report.trackers.tensorboard_hparams",
}
"""Tracker to the module whose `Store(where, runs)` writes for it; all but the last, which each run
writes itself, can follow runs too.
"""
SETTLED = ("done", "failed", "diverged", "pruned", "stopped")
"""States in which the records of every step are complete."""
SINGLE = "attnlab"
"""The group of runs that belong to no sweep."""


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
    """A trial, or a run that belongs to no sweep, as a run.

    Attributes:
      id: 16 hex digits, of the sweep's name, when it was planned first, and the trial.
      group: the sweep; or `SINGLE`.
      facts: "trial" (its name), "seed", "state"; of a trial "variant", "candidate", and "chosen"
        ("yes" or "no").
      config: the whole resolved config, nested.
      varied: settings in which candidates of the sweep differ, by full name.
      curve: by step; without the newest, whose records may be incomplete, until the run has settled.
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
    def last(self) -> int:
        """Returns the last step; 0 before the first."""
        return self.curve[-1].step if self.curve else 0

    @property
    def digest(self) -> str:
        """A digest that changes if the run changes, to compare with an earlier export."""
        return _hash(dataclasses.asdict(self), 32)


class TrackerStore:
    """The runs of one tracker; made of where it keeps them, and of all that may be written.

    Attributes:
      hint: a line on how to look at them.
    """

    hint = ""

    def stored(self) -> Iterable[tuple[str, str]]:
        """Returns the id and the digest of every stored run, "" for one that is half written."""
        return ()

    def digests(self) -> Mapping[str, str]:
        """Returns the digest of every stored run by its id, "" for one that is half written or there
        twice.
        """
        digests: dict[str, str] = {}
        for identity, digest in self.stored():
            digests[identity] = "" if identity in digests else digest
        return digests

    def open(self, run: Tracked) -> tuple[Any, int]:
        """Returns the run with this id, found or new, as the tracker's client has it, and the last
        step that is there; -1 before the first.
        """
        raise NotImplementedError

    def log(self, opened: Any, points: Sequence[Point]) -> None:
        """Adds later steps to what `open` returned."""
        for point in points:
            opened.log(dict(point.values), step=point.step)

    def end(self, opened: Any, run: Tracked) -> None:
        """Adds the final numbers and the state, closes what `open` returned, and waits until all is
        written.
        """
        raise NotImplementedError

    def write(self, run: Tracked) -> None:
        """Writes a run as it is now; its digest last."""
        opened, last = self.open(run)
        self.log(opened, [point for point in run.curve if point.step > last])
        self.end(opened, run)


def tracked(records: Records) -> list[Tracked]:
    """Returns a `Tracked` (a run for a tracker) for each trial of a sweep that has begun, in order."""
    plan, varied = records.plan, varied_settings(records.plan)
    sweep = _hash([plan.name, plan.created], 6)
    group = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', plan.name)[:80]}-{sweep}"
    begun = (record for record in records.trials if record.seen.state != "pending")
    return [_run(records, record, group, varied[record.candidate.id]) for record in begun]


def single(workdir: Path) -> Tracked | None:
    """Reads a run that belongs to no sweep and returns it as a `Tracked`, or None before it has
    begun; raises UserError where a record is damaged.
    """
    manifest = Manifest.read(workdir)
    if manifest is None:
        return None
    events, stored = attempts.read(workdir), tracking.Tracking.read(workdir)
    state = "running" if is_held(workdir) else attempts.last_word(events)[0]
    times = [event["time"] for event in events]
    timing = read_records(workdir / "timing.jsonl", Timing)
    pace = cost(timing, events).step_seconds
    final = _final({split: numbers for split, (numbers, _, _) in read_scores(workdir).items()})
    name, seed = workdir.resolve().name, manifest.config["seed"]
    identity = stored.id if stored else _hash([name, manifest.created, manifest.config_hash], 16)
    began, ended = min(times, default=0.0), max(times, default=0.0)
    curve = _curve(read_records(workdir / "metrics.jsonl", Measured), began, pace, state)
    about = {"trial": name, "seed": seed, "state": state}
    return Tracked(identity, SINGLE, about, manifest.config, {}, curve, final, began, ended)


def _run(records: Records, record: Record, group: str, varied: Mapping[str, Any]) -> Tracked:
    """Returns a trial as a `Tracked` (a run for a tracker) of the group `group`: an id, facts,
    config, the settings `varied`, the curve, final scores and costs, and times of begin and end.
    """
    trial = record.seen.trial
    began = min((begin for _, begin, _ in record.logged.spans), default=0.0)
    ended = max((end for _, _, end in record.logged.spans), default=0.0)
    final = _final(record.scores)
    derived = {
        f"final/{name}": value(record, "valid", name) for name in derived_measures(records.plan)
    }
    costs = {f"cost/{name}": taken(record) for name, taken in COSTS.items()}
    final |= {
        name: float(number) for name, number in (derived | costs).items() if number is not None
    }
    identity = _hash([records.plan.name, records.plan.created, trial.name], 16)
    about = {**facts(records, record), "trial": trial.name}
    curve = _curve(record.logged.curve, began, record.cost.step_seconds, about["state"])
    return Tracked(identity, group, about, trial.config, varied, curve, final, began, ended)


def _final(scores: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Returns the scores, by split and then by name, as one dict with keys "final/split/name"."""
    return {
        f"final/{split}/{name}": number
        for split, numbers in scores.items()
        for name, number in numbers.items()
    }


def _curve(
    lines: Sequence[Mapping[str, Any]], began: float, pace: float | None, state: str
) -> tuple[Point, ...]:
    """Returns a learning curve as one point for each logged step, in order, with the numbers of all
    splits as "split/name" and a time that is estimated with `pace`, the seconds of a step; without
    the newest unless the `state` is settled: trackers take each step once, and it may lack a split.
    """
    steps: dict[int, dict[str, float]] = {}
    for point in lines:
        numbers = steps.setdefault(point["step"], {})
        for name, number in point.items():
            if type(number) in (int, float) and name != "step":
                numbers[f"{point['split']}/{name}"] = float(number)
    complete = sorted(steps)[: None if state in SETTLED else -1]
    return tuple(Point(step, began + step * (pace or 0.0), steps[step]) for step in complete)


def _hash(content: Any, digits: int) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:digits]


def folder(out: Path) -> Path:
    """Makes a folder where it is absent, and returns it."""
    out.mkdir(parents=True, exist_ok=True)
    return out


def pieces(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """The items in order, at most `size` at a time."""
    return [items[start : start + size] for start in range(0, len(items), size)]


@dataclasses.dataclass(frozen=True)
class Exported:
    """What an export did.

    Attributes:
      written, replaced, unchanged: numbers of runs: new ones; those whose records had changed; those
        that were there as they are.
      hint: how to look at them.
    """

    written: int
    replaced: int
    unchanged: int
    hint: str


def tracked_in(directory: Path, folders: Sequence[Path] | None = None) -> list[Tracked]:
    """Returns a list of `Tracked` (runs for a tracker): the single run in `directory` if it has a
    manifest there, otherwise the trials of the sweep in `directory` that have begun (only those in
    the trial folders `folders`, if given); raises `UserError` if there is neither run nor sweep, or
    for a damaged record.
    """
    if (directory / "manifest.json").exists():
        run = single(directory)
        return [] if run is None else [run]
    trials = directory / "trials"
    only = None if folders is None else [str(path.relative_to(trials)) for path in folders]
    return tracked(collect(directory, only))


def export(directory: Path, to: str, out: Path) -> Exported:
    """Writes the trials of a sweep that have begun, or one run, into the folder `out` as runs of
    the tracker `to` (a name of `TRACKERS`), and returns an `Exported`: how many were new, replaced
    or unchanged, and a hint on how to look at them.

    A run that is there under its id with the same records is left alone; one that was half written,
    or whose records have changed, is brought to what they are.

    Raises:
      UserError: no sweep, a damaged record, a package that is not installed.
    """
    runs = tracked_in(directory)
    if to in tracking.TRACKERS:
        tracking.check_installed(to, f"export --to={to}")
    store: TrackerStore = importlib.import_module(TRACKERS[to]).Store(str(out), runs)
    digests = store.digests()
    counts = {"written": 0, "replaced": 0, "unchanged": 0}
    for run in runs:
        if digests.get(run.id) == run.digest:
            counts["unchanged"] += 1
            continue
        store.write(run)
        counts["replaced" if run.id in digests else "written"] += 1
    return Exported(**counts, hint=store.hint)
