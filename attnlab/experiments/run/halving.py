"""Successive halving by rounds (Jamieson & Talwalkar 2016): which trials of a search continue, and
up to which step.

All trials of a round train up to a *rung*, an evaluation that all of them have; there they wait for
each other. The best third continues to the next rung, three times as far (the rungs of Li et al.
2017). The rungs are as late as possible: the last third of a round, or at least `Search.finish`
trials, trains from the last rung to the end. Everything here depends only on the records, not on
when or where a trial ran.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

FACTOR = 3
"""One in so many goes on, and the next rung is so many times as far."""


@dataclasses.dataclass(frozen=True)
class Course:
    """A trial of a round and its progress.

    Attributes:
      name: of its candidate.
      steps: of its evaluations, to the end of the training.
      scores: at those it has made, less is better; not finite where there is no number.
      settled: whether it will make no more.
    """

    name: str
    steps: Sequence[int]
    scores: Sequence[float]
    settled: bool

    def best(self, evaluations: int) -> float:
        """Returns the best (least) finite score in the first `evaluations` evaluations; infinity if
        there is none.
        """
        finite = filter(math.isfinite, self.scores[:evaluations])
        return min(finite, default=math.inf)


@dataclasses.dataclass(frozen=True)
class Ruling:
    """The decisions on the trials of a round that have not settled.

    Attributes:
      until: name to the step at which it waits for the others, None for its end.
      pruned: name to why it is stopped for good.
    """

    until: Mapping[str, int | None]
    pruned: Mapping[str, str]


def evaluations(training: Mapping[str, Any]) -> list[int]:
    """Returns the steps at which a training evaluates, by its settings; the last step is always
    one.
    """
    last, every = int(training["steps"]), int(training.get("evaluate_every") or 0)
    return [*range(every, last, every), last] if every else [last]


def rungs(trials: int, least: int, finish: int) -> int:
    """Returns how many times a round of `trials` trials is cut before its end, if each makes at
    least `least` evaluations.
    """
    count = 0
    while _passing(trials, count, finish) > min(finish, trials) and FACTOR ** (count + 1) <= least:
        count += 1
    return count


def ruling(courses: Sequence[Course], finish: int) -> Ruling:
    """Returns a `Ruling` on the unsettled trials of a round, given all its `courses`: which are
    pruned now, with the reason, and up to which step each other one trains (None: to its end); of
    equal scores the one drawn first continues.

    Args:
      courses: of the round; a failed or diverged trial frees no place for another.
      finish: the least number of trials that continue at every rung.
    """
    count = rungs(len(courses), min((len(course.steps) for course in courses), default=0), finish)
    going, pruned = list(courses), dict[str, str]()
    for rung in range(1, count + 1):
        at = {course.name: len(course.steps) // FACTOR ** (count + 1 - rung) for course in going}
        arrived = [course for course in going if len(course.scores) >= at[course.name]]
        if any(not course.settled for course in going if course not in arrived):
            left = [course for course in going if not course.settled]
            return Ruling(
                {course.name: course.steps[at[course.name] - 1] for course in left}, pruned
            )
        best = {course.name: course.best(at[course.name]) for course in arrived}
        ranked = sorted(arrived, key=lambda course: best[course.name])
        survivors = _passing(len(courses), rung, finish)
        for course in ranked[survivors:]:
            if not course.settled:
                where = f"pruned after {at[course.name]} of {len(course.steps)} evaluations"
                pruned[course.name] = (
                    f"{where}: {best[course.name]:.4g} is not among the best {survivors} of {len(courses)}"
                )
        going = ranked[:survivors]
    return Ruling({course.name: None for course in going if not course.settled}, pruned)


def _passing(trials: int, rung: int, finish: int) -> int:
    """Returns how many of `trials` trials continue beyond rung number `rung` (from 1): their number
    divided by `FACTOR` to the power `rung`, rounded up, but at least `finish`, or all if these are
    fewer.
    """
    return max(math.ceil(trials / FACTOR**rung), min(finish, trials))
