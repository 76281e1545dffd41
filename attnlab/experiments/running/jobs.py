"""What one process of a sweep does: train a trial, or evaluate a chosen candidate. The launcher lists jobs; an executor runs them."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from attnlab.errors import UserError, told
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.running import final, stacking, trial
from attnlab.experiments.running.selection import Choice, wanted
from attnlab.experiments.running.slots import Slot
from attnlab.experiments.running.state import recorded
from attnlab.experiments.running.unchanged import CHANGED
from attnlab.provenance import Changed


@dataclasses.dataclass(frozen=True)
class Job:
    """The work of one process.

    Attributes:
      kind: "train": a trial to its end, or several as one program; "final": one evaluation of all trials of a chosen candidate.
      trials: whose records it writes.
    """

    kind: Literal["train", "final"]
    trials: tuple[Trial, ...]

    @property
    def name(self) -> str:
        """What lines about it call it."""
        if self.kind == "final":
            return f"{self.trials[0].candidate.id} on the test split"
        return self.trials[0].name + (f" and {len(self.trials) - 1} more" if len(self.trials) > 1 else "")

    def left(self, directory: Path) -> list[Trial]:
        """The trials that it has still to bring to an end."""
        if self.kind == "train":
            return [one for one in self.trials if not recorded(one, directory).settled]
        done = (final.has_results(one, directory) and final.drawn(one.workdir(directory)) for one in self.trials)
        return [one for one, whole in zip(self.trials, done, strict=True) if not whole]


class Executor(Protocol):
    """Runs jobs somewhere."""

    def run(self, jobs: Sequence[Job]) -> list[str]:
        """Run all jobs to their end, or until told to stop; returns a line for each that failed and left no record of it."""


def training(plan: Plan, choice: Choice | None, directory: Path) -> list[Job]:
    """The trials that have not settled, one job each, in running order."""
    jobs = [Job("train", (one,)) for one in wanted(plan, choice)]
    return [job for job in jobs if job.left(directory)]


def stacked(jobs: Sequence[Job], slots: int) -> list[Job]:
    """The same trials in as few jobs as keep all slots busy: those that fit one program train together."""
    trials = [one for job in jobs for one in job.trials]
    most = min(stacking.MOST, math.ceil(len(trials) / max(1, slots)))
    return [Job("train", tuple(found)) for found in stacking.group(trials, max(1, most))]


def finals(plan: Plan, choice: Choice, directory: Path) -> list[Job]:
    """The evaluations of chosen candidates that are due, one job a candidate."""
    return [Job("final", tuple(trials)) for trials in final.due(plan, choice, directory).values()]


def perform(directory: Path, job: Job, slot: Slot) -> int:
    """Do a job in this process; the exit code, see `attnlab.experiments.running.trial`."""
    try:
        first = job.trials[0]
        if job.kind == "final":
            return final.run(directory, first.candidate.id)
        if len(job.trials) > 1:
            return stacking.run(directory, [one.name for one in job.trials], slot)
        return trial.run(directory, first.candidate.id, first.seed, slot)
    except Changed as error:
        print(f"error: {error}", file=sys.stderr)
        return CHANGED
    except (UserError, OSError) as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return 2
