"""The course of a search: rounds of trials for every variant, cut by `halving` where it prunes,
then the best setting for all seeds.

Its whole state is on disk, in the studies and in the records of trials, so any process may call
`advance` at any time and repeatedly.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from attnlab.experiments.define import Search
from attnlab.experiments.plan import Candidate, Plan, Trial, locked
from attnlab.experiments.run import halving, state
from attnlab.experiments.run.planning import grow
from attnlab.experiments.run.selection import Choice, validation_score, wanted
from attnlab.experiments.run.studies import Asked, Study
from attnlab.records import attempts
from attnlab.records.locks import exclusive


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
) -> Iterator[tuple[Candidate, halving.Ruling]]:
    """Yields pairs of a candidate of a variant that its study has drawn and the `Ruling` of
    `halving` on the candidate's round; yields nothing without a pruner.
    """
    if search.pruner is None:
        return
    candidates = {_key(candidate): candidate for candidate in plan.of(variant)}
    asked, begin = study.trials(), 0
    for end in itertools.accumulate(search.rounds()):
        drawn = dict.fromkeys(map(_key, asked[begin:end]))  # what was drawn twice is one trial
        members, begin = [candidates[key] for key in drawn if key in candidates], end
        courses = [_course(plan, directory, candidate) for candidate in members]
        rule = halving.ruling(courses, search.finish)
        yield from ((candidate, rule) for candidate in members)


def _course(plan: Plan, directory: Path, candidate: Candidate) -> halving.Course:
    """Returns the `Course` of a candidate's trial with the first seed: the steps of its
    evaluations, its scores so far (less is better), whether it has settled.
    """
    trial = Trial(candidate, plan.seeds[0])
    sign = 1.0 if plan.select["mode"] == "min" else -1.0
    scores = [sign * score for score in _scores(trial, directory, plan)]
    steps = halving.evaluations(trial.config["training"])
    return halving.Course(candidate.id, steps, scores, state.look(trial, directory).settled)


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
