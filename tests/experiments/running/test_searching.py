"""The course of a search with trials that train nothing: rounds, kills between any two steps, pruning, and who gets all seeds."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments import planned
from attnlab.experiments.plan import Candidate, Plan, Trial
from attnlab.experiments.running.searching import Watch, advance
from attnlab.experiments.running.selection import freeze
from attnlab.experiments.running.state import look
from attnlab.experiments.running.studies import Study
from attnlab.experiments.search import Search, log_uniform, uniform
from tests.experiments import plans, stub

pytest.importorskip("optuna")

SPACE = {"schedule.peak": log_uniform(1e-4, 1e-2), "system.dropout": uniform(0.0, 0.3)}


@pytest.fixture(autouse=True)
def quick_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates as planning makes them, without building anything."""

    def grow(directory: Path, points: Iterable[tuple[str, dict[str, Any]]]) -> list[Candidate]:
        plan = Plan.read(directory)
        assert plan is not None
        config = {"seed": plan.seeds[0], "training": {"steps": stub.STEPS}}
        wanted = [plan.want(variant, tuned) for variant, tuned in points]
        made = [Candidate(one.id, one.variant, one.tuned, one.overrides, config, 10, 2.0) for one in wanted]
        Plan.extend(directory, made)
        return made

    monkeypatch.setattr(planned, "grow", grow)


def begin(directory: Path, search: Search | None = None, **changes: Any) -> Plan:
    search = search or Search(SPACE, trials=8)
    plan = dataclasses.replace(plans.plan(search=search, **changes), candidates=())
    plan.write(directory)
    return plan


def loss(trial: Trial) -> float:
    """Best at a peak of 2e-3; additive is better by 1 for the same settings, and every seed by as much as its number is worse."""
    peak = trial.candidate.tuned["schedule.peak"]
    return abs(math.log(peak / 2e-3)) + (trial.candidate.variant == "general") + trial.seed


def left(directory: Path) -> list[Trial]:
    plan = Plan.read(directory)
    assert plan is not None
    return [trial for trial in plan.trials() if not look(trial, directory).settled]


def searched(directory: Path, endings: dict[int, str] | None = None) -> Plan:
    """The whole search; the trials whose number is in `endings` end so."""
    number = 0
    while advance(directory):
        for trial in left(directory):
            stub.finish(trial, directory, (endings or {}).get(number, "done"), loss(trial))
            number += 1
    plan = Plan.read(directory)
    assert plan is not None
    return plan


@pytest.mark.quick
def test_every_variant_gets_as_many_trials_and_its_best_gets_all_seeds(tmp_path: Path) -> None:
    begin(tmp_path)
    plan = searched(tmp_path)
    assert {variant: len(plan.of(variant)) for variant in plan.variants} == {"additive": 8, "general": 8}
    promoted = [one for one in plan.candidates if one.promoted]
    best = [min(plan.of(variant), key=lambda one: loss(Trial(one, 0))) for variant in plan.variants]
    assert sorted(one.id for one in promoted) == sorted(one.id for one in best)
    assert [trial.name for trial in left(tmp_path)] == [f"{one.id}/seed1" for one in plan.candidates if one.promoted]
    for trial in left(tmp_path):
        stub.finish(trial, tmp_path, loss=loss(trial))
    assert advance(tmp_path) is False and left(tmp_path) == []
    choice = freeze(plan, tmp_path)
    assert {choice.candidate(variant) for variant in plan.variants} == {one.id for one in best}
    assert all(choice.chosen[variant]["whole"] for variant in plan.variants)


def test_rounds_wait_for_each_other(tmp_path: Path) -> None:
    """The first round is drawn blind, four a variant; while one of a variant's trials is open, it draws no more."""
    begin(tmp_path)
    assert advance(tmp_path) and len(left(tmp_path)) == 8
    for trial in left(tmp_path)[1:]:
        stub.finish(trial, tmp_path, loss=loss(trial))
    assert advance(tmp_path)
    open_ = left(tmp_path)
    variants = [trial.candidate.variant for trial in open_]
    assert len(open_) == 5 and sorted(variants) == ["additive", "general", "general", "general", "general"]


def test_a_launcher_that_is_killed_anywhere_draws_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after every record of a study and after every settled trial: the candidates are those of an undisturbed search."""
    begin(tmp_path / "whole")
    whole = searched(tmp_path / "whole")
    begin(tmp_path / "killed")
    steps = {"left": 0}

    class Killed(Exception):
        pass

    def fragile(name: str) -> None:
        real = getattr(Study, name)

        def step(self: Study, *arguments: Any, **keywords: Any) -> Any:
            result = real(self, *arguments, **keywords)
            steps["left"] -= 1
            if steps["left"] <= 0:
                raise Killed
            return result

        monkeypatch.setattr(Study, name, step)

    fragile("ask")
    fragile("tell")
    kills, going = 0, True
    while going:
        steps["left"] = 1 + kills % 3
        try:
            going = advance(tmp_path / "killed")
        except Killed:
            kills += 1
            continue
        for trial in left(tmp_path / "killed"):
            stub.finish(trial, tmp_path / "killed", loss=loss(trial))
    plan = Plan.read(tmp_path / "killed")
    assert plan is not None and kills > 8
    assert {one.id: one.promoted for one in plan.candidates} == {one.id: one.promoted for one in whole.candidates}


def test_trials_that_fail_count_and_are_not_promoted(tmp_path: Path) -> None:
    begin(tmp_path)
    plan = searched(tmp_path, endings={0: "failed", 5: "diverged"})
    assert [len(plan.of(variant)) for variant in plan.variants] == [8, 8]
    states = [look(Trial(one, 0), tmp_path).state for one in plan.candidates if one.promoted]
    assert states == ["done", "done"]
    assert sum(look(Trial(one, 0), tmp_path).state != "done" for one in plan.candidates) == 2


def test_a_variant_that_is_added_later_is_searched_too(tmp_path: Path) -> None:
    plan = begin(tmp_path)
    plan = searched(tmp_path)
    more = {**plan.variants, "dot": {"system.attention.score": "dot"}}
    dataclasses.replace(plan, variants=more).write(tmp_path)
    before = {one.id for one in plan.candidates}
    grown = searched(tmp_path)
    assert before < {one.id for one in grown.candidates} and len(grown.of("dot")) == 8
    assert sorted(one.variant for one in grown.candidates if one.promoted) == ["additive", "dot", "general"]


@pytest.mark.parametrize(
    "changes",
    [
        {"base": {"training.steps": 24}},
        {"select": {"metric": "loss", "mode": "max"}},
        {"search": Search(SPACE, sampler="random", trials=3, seed=1).to_dict()},
        {"budget": {"match": "parameters", "within": 0.01, "knob": "system.decoder", "to": "additive", "knobs": {}}},
        {"seeds": (1, 0)},
    ],
)
def test_a_search_that_means_something_else_begins_anew(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Its plan begins without candidates, and what is known of the search before is not taken for its own."""
    first = Search(SPACE, sampler="random", trials=3)
    plan = begin(tmp_path, first)
    searched(tmp_path)
    dataclasses.replace(plan, **changes).write(tmp_path)
    again = searched(tmp_path)
    study = Study(tmp_path, Search.from_dict(again.search or {}), again.study("additive"), again.select["mode"])
    assert again.study("additive") != plan.study("additive") and [one.state for one in study.trials()] == ["complete"] * 3
    assert {variant: len(again.of(variant)) for variant in again.variants} == {"additive": 3, "general": 3}
    best = [max if changes.get("select") else min for _ in again.variants]
    best = [one(again.of(variant), key=lambda one: loss(Trial(one, 0))) for one, variant in zip(best, again.variants, strict=True)]
    assert [one.promoted for one in best] == [True, True]
    assert all(freeze(again, tmp_path).candidate(variant) for variant in again.variants)


def test_only_the_variant_that_has_changed_is_searched_again(tmp_path: Path) -> None:
    begin(tmp_path, Search(SPACE, sampler="random", trials=3))
    plan = searched(tmp_path)
    changed = {**plan.variants, "general": {"system.attention.score": "dot"}}
    dataclasses.replace(plan, variants=changed, candidates=tuple(plan.of("additive"))).write(tmp_path)
    assert advance(tmp_path)
    scores = [trial.candidate.overrides.get("system.attention.score") for trial in left(tmp_path) if trial.seed == 0]
    assert scores == ["dot"] * 3
    assert searched(tmp_path).of("additive") == plan.of("additive")


def test_settled_candidates_that_the_plan_has_lost_come_back(tmp_path: Path) -> None:
    """As when an experiment is changed and changed back."""
    begin(tmp_path, Search(SPACE, sampler="random", trials=3))
    plan = searched(tmp_path)
    dataclasses.replace(plan, candidates=()).write(tmp_path)
    assert advance(tmp_path) is False
    again = Plan.read(tmp_path)
    assert again is not None and {one.id: one.promoted for one in again.candidates} == {one.id: one.promoted for one in plan.candidates}


def evaluate(trial: Trial, directory: Path, *losses: float) -> None:
    """Write the validation records of a running trial."""
    workdir = trial.workdir(directory)
    workdir.mkdir(parents=True, exist_ok=True)
    records = [{"step": 5 * number, "split": "valid", "loss": one} for number, one in enumerate(losses, start=1)]
    records += [{"step": 99, "split": "train", "loss": 0.0}]
    (workdir / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_worse_trial_is_pruned_once_and_for_all(tmp_path: Path) -> None:
    begin(tmp_path, Search(SPACE, sampler="random", trials=3, pruner="halving"))
    advance(tmp_path)
    plan = Plan.read(tmp_path)
    assert plan is not None
    good, bad, late = plan.of("additive")
    watch = Watch(plan, tmp_path)
    assert watch(Trial(good, 0)) == ""  # no metrics yet
    evaluate(Trial(good, 0), tmp_path, 1.0)
    evaluate(Trial(bad, 0), tmp_path, 2.0)
    assert watch(Trial(good, 0)) == ""
    assert watch(Trial(bad, 0)) == "pruned after 1 evaluations: loss 2 is not among the better ones"
    assert Watch(plan, tmp_path)(Trial(bad, 0)).startswith("pruned")  # by another launcher, should this one be killed now
    assert Watch(plan, tmp_path)(Trial(good, 0)) == "" and watch(Trial(late, 0)) == ""
    evaluate(Trial(bad, 1), tmp_path, 9.0)
    assert watch(Trial(bad, 1)) == ""  # only the search's own trials are pruned
    other = Trial(plan.of("general")[0], 0)
    evaluate(other, tmp_path, 5.0)
    assert watch(other) == ""  # a study of its own
    states = [one.state for one in Study(tmp_path, Search.from_dict(plan.search or {}), plan.study("additive"), "min").trials()]
    assert states == ["running", "pruned", "running"]


def test_pruned_trials_are_settled_and_never_chosen(tmp_path: Path) -> None:
    from attnlab.experiments.running import attempts

    begin(tmp_path, Search(SPACE, sampler="random", trials=2, pruner="median"))
    advance(tmp_path)
    plan = Plan.read(tmp_path)
    assert plan is not None
    for variant in plan.variants:
        good, bad = plan.of(variant)
        stub.finish(Trial(good, 0), tmp_path, loss=3.0)
        workdir = Trial(bad, 0).workdir(tmp_path)
        workdir.mkdir(parents=True)
        attempt = attempts.Attempt.start(workdir, None)
        attempts.stop(workdir, "pruned after 2 evaluations: loss 9")
        attempt.end("interrupted", 5, "signal 15")
    assert advance(tmp_path) is False
    plan = Plan.read(tmp_path)
    assert plan is not None and [plan.of(variant)[0].promoted for variant in plan.variants] == [True, True]


def test_any_metric_that_is_recorded_while_training_can_be_pruned_by(tmp_path: Path) -> None:
    begin(tmp_path, Search(SPACE, sampler="random", trials=2, pruner="halving"), select=("macro_f1", "max"))
    assert advance(tmp_path)
    plan = Plan.read(tmp_path)
    assert plan is not None
    good, bad = (Trial(one, 0) for one in plan.of("additive"))
    for trial, value in ((good, 0.9), (bad, 0.2)):
        path = trial.workdir(tmp_path) / "metrics.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"split": "valid", "step": 3, "loss": 1.0, "macro_f1": value}) + "\n")
    watch = Watch(plan, tmp_path)
    assert watch(good) == "" and watch(bad) == "pruned after 1 evaluations: macro_f1 0.2 is not among the better ones"
