"""The course of a search: rounds of trials for every variant, cut by successive halving where it
prunes (Jamieson & Talwalkar 2016), then the best setting for all seeds.

Its whole state is on disk, in the studies and in the records of trials, so any process may call
`advance` at any time and repeatedly.

Halving: all trials of a round train up to a *rung*, an evaluation that all of them have; there they
wait for each other. The best third continues to the next rung, three times as far (the rungs of Li
et al. 2017). The rungs are as late as possible: the last third of a round, or at least
`Search.finish` trials, trains from the last rung to the end. What continues depends only on the
records, not on when or where a trial ran.
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.experiments.define import Search
from attnlab.experiments.plan import Candidate, Plan, Trial, locked
from attnlab.experiments.run import state
from attnlab.experiments.run.planning import grow
from attnlab.experiments.run.selection import Choice, validation_score, wanted
from attnlab.experiments.run.studies import Asked, Study
from attnlab.records import attempts
from attnlab.records.locks import exclusive

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


def advance(directory: Path) -> bool:
    """Advances a search: reports the results of settled trials to the studies, draws and plans the
    next ones, at the end promotes the best candidate of every variant; returns whether it goes on.

    With a pruner it also sets the step at which each trial waits, and stops the trials that are not
    among the best of their round.

    Returns:
      True while trials of the search are to be trained with the first seed (call it again after
      that); False when the search is over.

    Raises:
      UserError: no optuna, a setting in the space that does not fit the config.
    """
    with exclusive(directory / ".search-advance.lock"):
        plan = Plan.of_sweep(directory)
        assert plan.search is not None
        search, mode = Search.from_dict(plan.search), plan.select["mode"]
        names = {variant: plan.study(variant) for variant in plan.variants}
        studies = {key: Study(directory, search, name, mode) for key, name in names.items()}
        for variant, study in studies.items():
            _prune(plan, directory, variant, study, search)
            _report_results(plan, directory, variant, study)
            _draw_trials(study, search)
        asked = [(variant, point) for variant, study in studies.items() for point in study.trials()]
        # settled ones too: the plan may have lost them
        grow(directory, [(variant, point.tuned) for variant, point in asked])
        plan = _write_waiting_steps(directory, studies, search)
        open_ = any(not point.settled for _, point in asked)
        trials = wanted(plan, Choice.read(directory))
        firsts = [trial for trial in trials if trial.seed == plan.seeds[0]]
        if open_ or any(not state.look(trial, directory).settled for trial in firsts):
            return True
        _promote(plan, directory)
        return False


def _report_results(plan: Plan, directory: Path, variant: str, study: Study) -> None:
    """Reports to the study each of its trials that has settled: its validation score, None if it
    has none, or the scores so far of a pruned one.
    """
    candidates = {_key(candidate): candidate for candidate in plan.of(variant)}
    for point in study.trials():
        if point.settled or _key(point) not in candidates:
            continue
        seen = state.look(Trial(candidates[_key(point)], plan.seeds[0]), directory)
        if seen.word == "pruned":
            study.tell_pruned(point.number, _scores(seen.trial, directory, plan))
        elif seen.settled:
            score = validation_score(seen.trial, directory, plan.select["metric"])
            study.tell(point.number, score)


def _prune(plan: Plan, directory: Path, variant: str, study: Study, search: Search) -> None:
    """Stops the trials of a variant that the rulings prune, with the reason in their records."""
    for candidate, rule in _rulings(plan, directory, variant, study, search):
        if candidate.id in rule.pruned:
            workdir = Trial(candidate, plan.seeds[0]).workdir(directory)
            attempts.stop(workdir, rule.pruned[candidate.id])


def _write_waiting_steps(directory: Path, studies: Mapping[str, Study], search: Search) -> Plan:
    """Writes into the plan up to which step each trial of the search trains before it waits for its
    round; returns the new plan.
    """
    with locked(directory):
        plan = Plan.of_sweep(directory)
        rulings = [
            pair
            for variant, study in studies.items()
            for pair in _rulings(plan, directory, variant, study, search)
        ]
        paced = plan.paced({drawn.id: rule.until.get(drawn.id) for drawn, rule in rulings})
        if paced != plan:
            paced.write(directory)
        return paced


def _rulings(
    plan: Plan, directory: Path, variant: str, study: Study, search: Search
) -> Iterator[tuple[Candidate, Ruling]]:
    """Yields pairs of a candidate of a variant that its study has drawn and the `Ruling` on the
    candidate's round; yields nothing without a pruner.
    """
    if search.pruner is None:
        return
    candidates = {_key(candidate): candidate for candidate in plan.of(variant)}
    asked, begin = study.trials(), 0
    for end in itertools.accumulate(search.rounds()):
        drawn = dict.fromkeys(map(_key, asked[begin:end]))  # what was drawn twice is one trial
        members, begin = [candidates[key] for key in drawn if key in candidates], end
        courses = [_course(plan, directory, candidate) for candidate in members]
        rule = ruling(courses, search.finish)
        yield from ((candidate, rule) for candidate in members)


def _course(plan: Plan, directory: Path, candidate: Candidate) -> Course:
    """Returns the `Course` of a candidate's trial with the first seed: the steps of its
    evaluations, its scores so far (less is better), whether it has settled.
    """
    trial = Trial(candidate, plan.seeds[0])
    sign = 1.0 if plan.select["mode"] == "min" else -1.0
    scores = [sign * score for score in _scores(trial, directory, plan)]
    steps = evaluations(trial.config["training"])
    return Course(candidate.id, steps, scores, state.look(trial, directory).settled)


def _scores(trial: Trial, directory: Path, plan: Plan) -> list[float]:
    """Returns the selection metric at each evaluation that a trial has made so far."""
    return [float(record[plan.select["metric"]]) for record in state.validations(trial, directory)]


def _draw_trials(study: Study, search: Search) -> None:
    """Has the study draw the trials that the current round still lacks, or those of the next round
    once all results of this one are reported; draws none while results are missing.

    A round is filled first, so that what is drawn does not depend on when a launcher was killed.
    """
    asked, ends = study.trials(), list(itertools.accumulate(search.rounds()))
    if len(asked) in ends and not all(point.settled for point in asked):
        return
    for _ in range(len(asked), next((end for end in ends if end > len(asked)), len(asked))):
        study.ask()


def _promote(plan: Plan, directory: Path) -> None:
    """Writes a plan in which exactly the best candidate of each variant is promoted, so that it is
    trained with all seeds.
    """
    with locked(directory):
        plan = Plan.of_sweep(directory).promote(_best(plan, directory))
        if plan != Plan.read(directory):
            plan.write(directory)


def _best(plan: Plan, directory: Path) -> Iterator[str]:
    """Yields, for each variant, the id of the candidate to train with all seeds: the frozen one,
    else the one with the best validation score with the first seed; skips a variant without scores.
    """
    sign = 1.0 if plan.select["mode"] == "min" else -1.0
    first, metric = plan.seeds[0], plan.select["metric"]
    choice = Choice.read(directory)
    for variant in plan.variants:
        if choice is not None and (frozen := choice.candidate(variant)) is not None:
            yield frozen
            continue
        losses = {
            candidate.id: sign * score
            for candidate in plan.of(variant)
            if (score := validation_score(Trial(candidate, first), directory, metric)) is not None
        }
        if losses:
            yield min(losses, key=lambda identity: losses[identity])


def _key(point: Candidate | Asked) -> str:
    """Returns the tuned settings of a candidate or draw as a text by which both can be matched."""
    return json.dumps(point.tuned, sort_keys=True)
