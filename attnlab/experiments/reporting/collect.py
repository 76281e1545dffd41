"""What a sweep's folder holds, as plain values: the one place of the report that reads files.

Everything else in a report is a function of these, so that the same records give the same report.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.errors import UserError
from attnlab.experiments.plan import Candidate, Plan, Trial
from attnlab.experiments.running import attempts
from attnlab.experiments.running.selection import Choice, wanted
from attnlab.experiments.running.state import Seen, look
from attnlab.json_kinds import Damaged, Finite, Natural, read
from attnlab.training.manifest import Manifest
from attnlab.training.records import Measured, read_records
from attnlab.training.records import Record as Line

Curve = tuple[Mapping[str, Any], ...]
SCORES: Mapping[str, str] = {"valid": "valid.json", "test": "results.json"}
"""Where the scores of a split stand in a trial's folder."""


class Timing(Line, total=False):
    """What is read of a line of `timing.jsonl`."""

    step_seconds: Finite
    together: Natural


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a trial took; None where it is not recorded.

    Attributes:
      step_seconds: median over the logged steps.
      first_step_seconds: from the start of its process to its first step, of the first attempt that got there.
      peak_bytes: the most memory that a process of it held on the host.
      together: how many trials moved in the median step, each with an equal share of its time; 1 for it alone.
      most_together: the most in any logged step: the peak memory is that of so many at least.
    """

    step_seconds: float | None = None
    first_step_seconds: float | None = None
    peak_bytes: float | None = None
    together: int = 1
    most_together: int = 1


@dataclasses.dataclass(frozen=True)
class Record:
    """What one trial left behind.

    Attributes:
      seen: candidate and seed, and how far it came.
      cost: time and memory.
      scores: split to measure to number; numbers that are not finite are left out.
      curve: the records of `metrics.jsonl`, in order.
      pictures: attention pictures of the first test sentence, by map.
      manifest: None before it has begun.
    """

    seen: Seen
    cost: Cost
    scores: Mapping[str, Mapping[str, float]]
    curve: Curve
    pictures: Mapping[str, Path]
    manifest: Manifest | None

    @property
    def candidate(self) -> Candidate:
        """What was trained."""
        return self.seen.trial.candidate

    @property
    def seed(self) -> int:
        """Its seed."""
        return self.seen.trial.seed


@dataclasses.dataclass(frozen=True)
class Records:
    """What a sweep left behind.

    Attributes:
      plan: the experiment.
      choice: None before it is frozen.
      trials: of every candidate and seed, in the order of variants, candidates and seeds.
    """

    plan: Plan
    choice: Choice | None
    trials: tuple[Record, ...]

    def of(self, candidate: Candidate) -> tuple[Record, ...]:
        """The trials of a candidate, by seed as the plan has them."""
        return tuple(record for record in self.trials if record.candidate.id == candidate.id)

    def standing(self, variant: str) -> Candidate | None:
        """The candidate that stands for a variant: the chosen one, the first where no trial of it came through; None before the choice."""
        if self.choice is None or variant not in self.choice.chosen:
            return None
        candidates = self.plan.of(variant)
        first = candidates[0] if candidates else None
        return next((one for one in candidates if one.id == self.choice.candidate(variant)), first)

    @property
    def wanted(self) -> tuple[Record, ...]:
        """The trials that the answer needs: all, and once the choice is frozen those of the chosen candidates."""
        names = {trial.name for trial in wanted(self.plan, self.choice)}
        return tuple(record for record in self.trials if record.seen.trial.name in names)

    @property
    def complete(self) -> bool:
        """Whether nothing more will come: the choice is frozen, every trial has settled and every finished chosen one is scored."""
        return self.choice is not None and all(
            record.seen.settled and (record.seen.state != "done" or bool(record.scores["test"])) for record in self.wanted
        )


def collect(directory: Path) -> Records:
    """Read a sweep's folder.

    Raises:
      UserError: there is no plan in it, or a file in it is damaged.
    """
    plan = Plan.read(directory)
    if plan is None:
        raise UserError(f"{directory} holds no sweep (no plan.json in it); name the folder that was --dir of one")
    planned = plan.trials()
    trials = [trial for variant in plan.variants for one in plan.of(variant) for trial in planned if trial.candidate.id == one.id]
    return Records(plan, Choice.read(directory), tuple(_record(trial, directory) for trial in trials))


def _record(trial: Trial, directory: Path) -> Record:
    """Read the folder of a trial; one that never began has an empty record."""
    workdir = trial.workdir(directory)
    return Record(
        seen=look(trial, directory),
        cost=_cost(read_records(workdir / "timing.jsonl", Timing), attempts.read(workdir)),
        scores={split: _scores(workdir / name) for split, name in SCORES.items()},
        curve=tuple(read_records(workdir / "metrics.jsonl", Measured)),
        pictures={path.stem.removeprefix("test0-"): path for path in sorted((workdir / "maps").glob("test0-*.png"))},
        manifest=Manifest.read(workdir),
    )


def _cost(timing: list[dict[str, Any]], events: list[dict[str, Any]]) -> Cost:
    """Time and memory from the records of a trial."""
    steps = [(record["step_seconds"], record.get("together", 1)) for record in timing if "step_seconds" in record]
    firsts, peaks = ([event[key] for event in events if event.get(key)] for key in ("first_step_seconds", "peak_bytes"))
    pace, together = median_pace(steps)
    most = max((number for _, number in steps), default=1)
    return Cost(pace, firsts[0] if firsts else None, max(peaks, default=None), together, most)


def median_pace(steps: Sequence[tuple[float, int]]) -> tuple[float | None, int]:
    """The median of seconds, and how many trials the step in the middle trained together (of two, the shorter)."""
    if not steps:
        return None, 1
    return statistics.median(seconds for seconds, _ in steps), statistics.median_low(steps)[1]


def _scores(path: Path) -> dict[str, float]:
    """The finite numbers of a file of scores; none where it does not exist."""
    try:
        named = read(path.read_bytes(), dict[str, Any])
    except FileNotFoundError:
        return {}
    except Damaged as error:
        raise UserError(f"{path} is damaged ({error}): put back a good copy, or remove it and run the sweep again") from error
    return {name: float(value) for name, value in named.items() if is_finite(value)}


def is_finite(value: Any) -> bool:
    """Whether it is a number, and one that a mean can be made of."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
