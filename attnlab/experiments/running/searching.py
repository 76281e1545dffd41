"""The course of a search: rounds of trials for every variant, then the best setting of each for all seeds.

All that it knows is on disk, in the studies and in the trials' records, so `advance` may be called by any process, at any
time, as often as one likes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path

from attnlab.errors import UserError
from attnlab.experiments import planned
from attnlab.experiments.plan import Candidate, Plan, Trial, locked
from attnlab.experiments.running import state
from attnlab.experiments.running.selection import validation_score
from attnlab.experiments.running.studies import Asked, Study, exclusive
from attnlab.experiments.search import Search
from attnlab.training.records import Measured, read_records


def advance(directory: Path) -> bool:
    """Tell what has settled, ask for the next trials and plan them; at the end promote the best candidate of every variant.

    Returns:
      True while trials of the search are to be trained, with the first seed, after which it is to be called again; False once
      the search is over.

    Raises:
      UserError: no optuna, a setting in the space that does not fit the config.
    """
    with exclusive(directory / ".search-advance.lock"):
        plan = _plan(directory)
        assert plan.search is not None
        search, studies = _open(plan, directory)
        for variant, study in studies.items():
            _tell(plan, directory, variant, study)
            _ask(study, search)
        asked = [(variant, one) for variant, study in studies.items() for one in study.trials()]
        planned.grow(directory, [(variant, one.tuned) for variant, one in asked])  # settled ones too: the plan may have lost them
        plan = _plan(directory)
        open_ = any(not one.settled for _, one in asked)
        if open_ or any(not state.look(Trial(one, plan.seeds[0]), directory).settled for one in plan.candidates):
            return True
        _promote(plan, directory)
        return False


class Watch:
    """Says of a running trial whether the pruner stops it; safe in several processes at once.

    Args:
      plan: with a search.
      directory: the sweep's folder.
    """

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan, self._directory = plan, directory
        self._search, self._studies = _open(plan, directory)
        self._read: dict[str, float] = {}

    def __call__(self, trial: Trial) -> str:
        """Why the trial is to be stopped, "pruned ..."; "" to let it go on."""
        metric, path = self._plan.select["metric"], trial.workdir(self._directory) / "metrics.jsonl"
        if self._search.pruner is None or trial.seed != self._plan.seeds[0] or not self._grown(trial, path):
            return ""
        study = self._studies[trial.candidate.variant]
        asked = [one for one in study.trials() if _key(one) == _key(trial.candidate)]
        values = [record[metric] for record in read_records(path, Measured) if record["split"] == "valid"]
        for one in [one for one in asked if not one.settled][:1]:
            if study.report(one.number, values):
                study.tell(one.number, None, pruned=True)  # at once: it is pruned even if its process outlives this one
                return f"pruned after {len(values)} evaluations: {metric} {values[-1]:.4g} is not among the better ones"
        return "pruned before" if any(one.state == "pruned" for one in asked) else ""

    def _grown(self, trial: Trial, path: Path) -> bool:
        """Whether its metrics have changed since the last look."""
        size = path.stat().st_size if path.exists() else 0
        before, self._read[trial.name] = self._read.get(trial.name, 0), size
        return size != before


def _plan(directory: Path) -> Plan:
    plan = Plan.read(directory)
    if plan is None:
        raise UserError(f"{directory} holds no plan; run 'sweep' there first")
    return plan


def _open(plan: Plan, directory: Path) -> tuple[Search, dict[str, Study]]:
    """The search of a plan and the study of each variant; `UserError` without optuna."""
    assert plan.search is not None
    search = Search.from_dict(plan.search)
    return search, {variant: Study(directory, search, plan.study(variant), plan.select["mode"]) for variant in plan.variants}


def _tell(plan: Plan, directory: Path, variant: str, study: Study) -> None:
    """Tell the study what has settled."""
    candidates = {_key(one): one for one in plan.of(variant)}
    for one in study.trials():
        if one.settled or _key(one) not in candidates:
            continue
        seen = state.look(Trial(candidates[_key(one)], plan.seeds[0]), directory)
        if seen.settled:
            score = validation_score(seen.trial, directory, plan.select["metric"])
            study.tell(one.number, score, pruned=seen.state == "interrupted")


def _ask(study: Study, search: Search) -> None:
    """Ask for what is missing of a round, or for the next one when all is told.

    A round is filled first, so that what is drawn does not depend on when a launcher was killed.
    """
    asked, ends = study.trials(), list(itertools.accumulate(search.rounds()))
    if len(asked) in ends and not all(one.settled for one in asked):
        return
    for _ in range(len(asked), next((end for end in ends if end > len(asked)), len(asked))):
        study.ask()


def _promote(plan: Plan, directory: Path) -> None:
    """The best candidate of every variant with the first seed, the first of equals, is trained with all seeds."""
    with locked(directory):
        plan = _plan(directory).promote(_best(plan, directory))
        if plan != Plan.read(directory):
            plan.write(directory)


def _best(plan: Plan, directory: Path) -> Iterator[str]:
    sign = 1.0 if plan.select["mode"] == "min" else -1.0
    for variant in plan.variants:
        scores = {one.id: validation_score(Trial(one, plan.seeds[0]), directory, plan.select["metric"]) for one in plan.of(variant)}
        found = {identity: sign * score for identity, score in scores.items() if score is not None}
        if found:
            yield min(found, key=lambda identity: found[identity])


def _key(one: Candidate | Asked) -> str:
    """The tuned settings, the same before and after JSON."""
    return json.dumps(one.tuned, sort_keys=True)
