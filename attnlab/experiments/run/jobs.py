"""What one process of a sweep does: train a trial, or several as one program, or evaluate a chosen
candidate on the test split (`perform`). The launcher lists such jobs; an executor runs them.

Its exit code is 0: done, now or before; 1: one failed or diverged, or an error ended all; 2:
nothing was begun, and one line on stderr says why; 75: another process is at one of them; 76: and
the locks do not hold; 78: code or data is not what the sweep was planned with; 128 + n: stopped by
signal n.
"""

import dataclasses
import fnmatch
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, Protocol

from attnlab.errors import UserError, nearest, one_line
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run import scoring, training
from attnlab.experiments.run.selection import Choice, wanted
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.state import is_left
from attnlab.records import attempts
from attnlab.records.locks import Unlocked, is_held
from attnlab.records.provenance import Changed
from attnlab.training.hyperparameters import signature

MOST = 64  # trials in one program, by default


@dataclasses.dataclass(frozen=True)
class Job:
    """The work of one process.

    Attributes:
      kind: "train": a trial to its end, or several as one program; "final": one evaluation of all
        trials of a chosen candidate.
      trials: whose records it writes.
    """

    kind: Literal["train", "final"]
    trials: tuple[Trial, ...]

    @property
    def name(self) -> str:
        """Returns the job's name for messages: the first trial's and how many more there are, or,
        of an evaluation, "CANDIDATE on the test split".
        """
        first, *others = self.trials
        if self.kind == "final":
            return f"{first.candidate.id} on the test split"
        return f"{first.name} and {len(others)} more" if others else first.name

    @property
    def together(self) -> bool:
        """Whether it trains several trials as one program."""
        return self.kind == "train" and len(self.trials) > 1

    def left(self, directory: Path) -> list[Trial]:
        """Returns the job's trials that are still to be trained (to the end or the step at which
        their search waits), or, for an evaluation, that lack results or pictures.
        """
        to_do = is_left if self.kind == "train" else scoring.is_left
        return [trial for trial in self.trials if to_do(trial, directory)]

    def held(self, directory: Path) -> list[Trial]:
        """Returns those of the job's remaining trials that another process works on."""
        return [trial for trial in self.left(directory) if is_held(trial.workdir(directory))]


@dataclasses.dataclass(frozen=True)
class Part:
    """The part of a sweep that is to run now. It does not affect the choice.

    Attributes:
      only: patterns (`fnmatch`) of names of variants, candidates or trials, of which one must fit;
        () for all.
      skip: patterns of which none may fit.
    """

    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    @classmethod
    def of(cls, only: str | None, skip: str | None) -> "Part":
        """Makes the part of a sweep from the values of `--only` and `--skip`: patterns separated by
        commas, or None.
        """
        lists = ([word.strip() for word in (text or "").split(",")] for text in (only, skip))
        return cls(*(tuple(filter(None, patterns)) for patterns in lists))

    def takes(self, trial: Trial) -> bool:
        """Returns whether a trial is in this part: its variant, candidate or trial name fits a
        pattern of `only` (if there are any) and none of `skip`.
        """
        names = _names(trial)
        only, skip = (
            [any(fnmatch.fnmatchcase(name, pattern) for name in names) for pattern in patterns]
            for patterns in (self.only, self.skip)
        )
        return (any(only) or not only) and not any(skip)

    def check(self, plan: Plan) -> None:
        """Raises `UserError` if a pattern fits no variant, candidate or trial of a plan."""
        names = {*plan.variants, *(name for trial in plan.trials() for name in _names(trial))}
        for flag, patterns in (("--only", self.only), ("--skip", self.skip)):
            for pattern in patterns:
                if not fnmatch.filter(names, pattern):
                    raise UserError(
                        f"{flag}={pattern}: no variant, candidate or trial is called so;"
                        f" {nearest(pattern, plan.variants)}"
                    )


WHOLE = Part()
"""All of it."""


def _names(trial: Trial) -> tuple[str, str, str]:
    return trial.candidate.variant, trial.candidate.id, trial.name


Due = Callable[[], Sequence[Job]]
"""Lists the jobs that are left; it may be asked again and again."""


class Executor(Protocol):
    """Runs jobs somewhere."""

    def run(self, due: Due) -> list[str]:
        """Run what is due until nothing is, or until told to stop; returns a line for each job that
        failed without a record.
        """


def trainings(plan: Plan, choice: Choice | None, directory: Path, part: Part = WHOLE) -> list[Job]:
    """Returns a training job for each trial of a part that is still to be trained, in running
    order.
    """
    jobs = [Job("train", (trial,)) for trial in wanted(plan, choice) if part.takes(trial)]
    return [job for job in jobs if job.left(directory)]


def stacked(jobs: Sequence[Job], slots: int) -> list[Job]:
    """Regroups the trials of training jobs so that those that fit train as one program, in as few
    jobs as keep all slots busy; evaluations stay as they are.
    """
    trials = [trial for job in jobs if job.kind == "train" for trial in job.trials]
    most = min(MOST, math.ceil(len(trials) / max(1, slots)))
    together = [Job("train", tuple(members)) for members in group(trials, max(1, most))]
    return together + [job for job in jobs if job.kind != "train"]


def group(trials: Iterable[Trial], most: int = MOST) -> list[list[Trial]]:
    """Groups trials that can train together as one program (alike but for hyperparameters), at most
    `most` in a group; the order is kept, of the groups and in them.

    Trials that fit are those that differ in nothing but `attnlab.training.hyperparameters`, and are
    equally long, so that none is computed after its end; one that goes on from another run, or
    may end early, trains alone. Needs no jax.
    """
    alike: dict[tuple[str, int, str], list[Trial]] = {}
    for trial in trials:
        settings = trial.config["training"]
        early = settings.get("stop", {}).get("measure")
        alone = trial.name if settings.get("after") or early else ""
        key = signature(trial.config, users_code=False), settings["steps"], alone
        alike.setdefault(key, []).append(trial)
    return [
        members[begin : begin + most]
        for members in alike.values()
        for begin in range(0, len(members), most)
    ]


def finals(plan: Plan, choice: Choice, directory: Path) -> list[Job]:
    """Returns an evaluation job for each chosen candidate that lacks test results or pictures."""
    return [Job("final", tuple(trials)) for trials in scoring.due(plan, choice, directory).values()]


def due(plan: Plan, choice: Choice | None, directory: Path, part: Part = WHOLE) -> list[Job]:
    """Returns the jobs that are due now: training of a part's trials, and evaluations of chosen
    candidates if there is a choice.
    """
    evaluations = finals(plan, choice, directory) if choice else []
    return [*trainings(plan, choice, directory, part), *evaluations]


def in_turn(jobs: list[Job], number: int, directory: Path) -> list[Job]:
    """Returns the jobs in the order in which worker `number` takes them: those begun before the
    others, each of the two lists rotated by the number, so that workers begin with different jobs.
    """
    begun = [
        job for job in jobs if any(attempts.read(trial.workdir(directory)) for trial in job.trials)
    ]
    parts = (begun, [job for job in jobs if job not in begun])
    return [part[(place + number) % len(part)] for part in parts for place in range(len(part))]


def named(directory: Path, name: str) -> Trial:
    """Returns the trial called "additive-3f2a9c1b/seed0", for example, in the plan of a sweep
    folder; raises `UserError` if there is none.

    Raises:
      UserError: a name of another form, no plan, no such trial.
    """
    plan = Plan.of_sweep(directory)
    candidate, _, seed = name.partition("/seed")
    if not seed.isdecimal():
        raise UserError(f"{name!r} is no trial: expected CANDIDATE/seedN")
    return plan.trial(candidate, int(seed))


def perform(directory: Path, job: Job, slot: Slot | None = None) -> int:
    """Trains the trials of a job, or evaluates its candidate, in this process and returns the exit
    code, that of `training.run` or `scoring.run`, or after an error of the user's, printed on
    stderr, `training.CHANGED`, `training.UNLOCKED` or 2.
    """
    try:
        if job.kind == "final":
            return scoring.run(directory, job.trials[0].candidate.id)
        return training.run(directory, job.trials, slot)
    except Changed as error:
        print(f"error: {error}", file=sys.stderr)
        return training.CHANGED
    except (UserError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return training.UNLOCKED if isinstance(error, Unlocked) else 2
