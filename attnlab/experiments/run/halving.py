"""Successive halving by rounds (Jamieson & Talwalkar 2016): which trials of a search continue, and
up to which step.

All trials of a round train up to a *rung*, an evaluation that all of them have; there they wait for
each other. The best third continues to the next rung, three times as far (the rungs of Li et al.
2017). The rungs are as late as possible: the last third of a round, or at least `Search.finish`
trials, trains from the last rung to the end. Everything here depends only on the records, not on
when or where a trial ran.
"""

from __future__ import annotations

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
        """Its best score in so many evaluations; infinite where none was a number."""
        return min(
            (score for score in self.scores[:evaluations] if math.isfinite(score)), default=math.inf
        )


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
    """The steps of the evaluations that a training makes, by its settings; the last step is
    always one.
    """
    last, every = int(training["steps"]), int(training.get("evaluate_every") or 0)
    return [*range(every, last, every), last] if every else [last]


def rungs(trials: int, least: int, finish: int) -> int:
    """How often a round of so many trials is cut before its end, when each of them makes at least
    `least` evaluations.
    """
    count = 0
    while _kept(trials, count, finish) > min(finish, trials) and FACTOR ** (count + 1) <= least:
        count += 1
    return count


def ruling(courses: Sequence[Course], finish: int) -> Ruling:
    """The decisions on a round, whose trials are in the order in which they were drawn: of equal
    trials the first continues.

    Args:
      courses: of the round; a failed or diverged trial frees no place for another.
      finish: the least number of trials that continue at every rung.
    """
    count = rungs(len(courses), min((len(one.steps) for one in courses), default=0), finish)
    going, pruned = list(courses), dict[str, str]()
    for rung in range(1, count + 1):
        at = {one.name: len(one.steps) // FACTOR ** (count + 1 - rung) for one in going}
        there = [one for one in going if len(one.scores) >= at[one.name]]
        if any(not one.settled for one in going if one not in there):
            return Ruling(
                {one.name: one.steps[at[one.name] - 1] for one in going if not one.settled}, pruned
            )
        best = {one.name: one.best(at[one.name]) for one in there}
        ranked, kept = (
            sorted(there, key=lambda one: best[one.name]),
            _kept(len(courses), rung, finish),
        )
        for one in ranked[kept:]:
            if not one.settled:
                where = f"pruned after {at[one.name]} of {len(one.steps)} evaluations"
                pruned[one.name] = (
                    f"{where}: {best[one.name]:.4g} is not among the best {kept} of {len(courses)}"
                )
        going = ranked[:kept]
    return Ruling({one.name: None for one in going if not one.settled}, pruned)


def _kept(trials: int, rung: int, finish: int) -> int:
    """How many go on past a rung, the first is 1."""
    return max(math.ceil(trials / FACTOR**rung), min(finish, trials))
