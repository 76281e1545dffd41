"""The course of a search with trials that train nothing: rounds, kills between any two steps,
pruning, and who gets all seeds.
"""

import dataclasses
import json
import math
import random
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.define.search import Search, log_uniform, uniform
from attnlab.experiments.plan import Candidate, Plan, Trial
from attnlab.experiments.run import Board, Stop, searching
from attnlab.experiments.run.jobs import Due
from attnlab.experiments.run.launcher import Launcher
from attnlab.experiments.run.searching import advance
from attnlab.experiments.run.selection import freeze
from attnlab.experiments.run.state import is_left, look
from attnlab.experiments.run.studies import Study
from attnlab.records import attempts
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from attnlab.records.stream import read_records
from tests.experiments import plans, stub, synthetic
from tests.experiments.real import plan as read

pytest.importorskip("optuna")

SPACE = {"schedule.peak": log_uniform(1e-4, 1e-2), "system.dropout": uniform(0.0, 0.3)}


@pytest.fixture(autouse=True)
def quick_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates as planning makes them, without building anything."""

    def grow(directory: Path, points: Iterable[tuple[str, dict[str, Any]]]) -> list[Candidate]:
        plan = read(directory)
        config = {"seed": plan.seeds[0], "training": {"steps": stub.STEPS, "evaluate_every": 1}}
        first = 0 if plan.search is not None and plan.search["pruner"] else None
        wanted = [plan.want(variant, tuned) for variant, tuned in points]
        made = [
            Candidate(one.id, one.variant, one.tuned, one.overrides, config, 10, 2.0, until=first)
            for one in wanted
        ]
        Plan.extend(directory, made)
        return made

    monkeypatch.setattr(searching, "grow", grow)


def begin(directory: Path, search: Search | None = None, **changes: Any) -> Plan:
    search = search or Search(SPACE, trials=8)
    plan = dataclasses.replace(plans.plan(search=search, **changes), candidates=())
    plan.write(directory)
    return plan


def loss(trial: Trial) -> float:
    """Best at a peak of 2e-3; additive is better by 1 for the same settings, and every seed by as
    much as its number is worse.
    """
    peak = trial.candidate.tuned["schedule.peak"]
    return abs(math.log(peak / 2e-3)) + (trial.candidate.variant == "general") + trial.seed


def left(directory: Path) -> list[Trial]:
    plan = read(directory)
    return [trial for trial in plan.trials() if not look(trial, directory).settled]


def searched(directory: Path, endings: dict[int, str] | None = None) -> Plan:
    """The whole search; the trials whose number is in `endings` end so."""
    number = 0
    while advance(directory):
        for trial in left(directory):
            stub.finish(trial, directory, (endings or {}).get(number, "done"), loss(trial))
            number += 1
    return read(directory)


@pytest.mark.quick
def test_every_variant_gets_as_many_trials_and_its_best_gets_all_seeds(tmp_path: Path) -> None:
    begin(tmp_path)
    plan = searched(tmp_path)
    expected = {"additive": 8, "general": 8}
    assert {variant: len(plan.of(variant)) for variant in plan.variants} == expected
    promoted = [one for one in plan.candidates if one.promoted]
    best = [min(plan.of(variant), key=lambda one: loss(Trial(one, 0))) for variant in plan.variants]
    assert sorted(one.id for one in promoted) == sorted(one.id for one in best)
    assert [trial.name for trial in left(tmp_path)] == [f"{one.id}/seed1" for one in promoted]
    for trial in left(tmp_path):
        stub.finish(trial, tmp_path, loss=loss(trial))
    assert advance(tmp_path) is False and left(tmp_path) == []
    choice = freeze(plan, tmp_path)
    assert {choice.candidate(variant) for variant in plan.variants} == {one.id for one in best}
    assert all(choice.chosen[variant]["whole"] for variant in plan.variants)


def test_rounds_wait_for_each_other(tmp_path: Path) -> None:
    """The first round is drawn blind, four a variant; while one of a variant's trials is open, it
    draws no more.
    """
    begin(tmp_path)
    assert advance(tmp_path) and len(left(tmp_path)) == 8
    for trial in left(tmp_path)[1:]:
        stub.finish(trial, tmp_path, loss=loss(trial))
    assert advance(tmp_path)
    open_ = left(tmp_path)
    variants = [trial.candidate.variant for trial in open_]
    assert len(open_) == 5
    assert sorted(variants) == ["additive", "general", "general", "general", "general"]


@pytest.mark.parametrize("pruner", [None, "halving"])
def test_a_launcher_that_is_killed_anywhere_draws_the_same(
    pruner: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after every record of a study, every word to stop and every trial: candidates and ends
    are those of an undisturbed search.
    """
    search, chance = Search(SPACE, trials=8, pruner=pruner), random.Random(0)
    whole = course(tmp_path / "whole", 1, search)
    begin(tmp_path / "killed", search)
    steps = {"left": 0}

    class Killed(Exception):
        pass

    def fragile(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*arguments: Any) -> Any:
            result = real(*arguments)
            steps["left"] -= 1
            if steps["left"] <= 0:
                raise Killed
            return result

        monkeypatch.setattr(owner, name, step)

    for name in ("ask", "tell", "tell_pruned"):
        fragile(Study, name)
    fragile(attempts, "stop")
    kills, going = 0, True
    while going:
        steps["left"] = 1 + kills % 3
        try:
            going = advance(tmp_path / "killed")
        except Killed:
            kills += 1
            continue
        for trial in left(tmp_path / "killed"):
            if is_left(trial, tmp_path / "killed"):
                train(tmp_path / "killed", trial, chance)
    assert ends(tmp_path / "killed") == whole and kills > 8
    assert sum("pruned" in end for end in whole.values()) == (8 if pruner else 0)


def test_trials_that_fail_count_and_are_not_promoted(tmp_path: Path) -> None:
    begin(tmp_path)
    plan = searched(tmp_path, endings={0: "failed", 5: "diverged"})
    assert [len(plan.of(variant)) for variant in plan.variants] == [8, 8]
    states = [look(Trial(one, 0), tmp_path).state for one in plan.candidates if one.promoted]
    assert states == ["done", "done"]
    assert sum(look(Trial(one, 0), tmp_path).state != "done" for one in plan.candidates) == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"base": {"training.steps": 24}},
        {"select": {"metric": "loss", "mode": "max"}},
        {"search": Search(SPACE, sampler="random", trials=3, seed=1).to_dict()},
        {"budget": synthetic.budget("additive")},
        {"seeds": (1, 0)},
    ],
)
def test_a_search_of_another_meaning_begins_anew(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Its plan begins without candidates, and what is known of the search before is not taken for
    its own.
    """
    first = Search(SPACE, sampler="random", trials=3)
    plan = begin(tmp_path, first)
    searched(tmp_path)
    dataclasses.replace(plan, **changes).write(tmp_path)
    again = searched(tmp_path)
    search = Search.from_dict(again.search or {})
    study = Study(tmp_path, search, again.study("additive"), again.select["mode"])
    assert again.study("additive") != plan.study("additive")
    assert [one.state for one in study.trials()] == ["complete"] * 3
    expected = {"additive": 3, "general": 3}
    assert {variant: len(again.of(variant)) for variant in again.variants} == expected
    choose = max if "select" in changes else min
    for variant in again.variants:
        assert choose(again.of(variant), key=lambda one: loss(Trial(one, 0))).promoted
    assert all(freeze(again, tmp_path).candidate(variant) for variant in again.variants)


def test_only_the_variants_that_have_changed_or_are_new_are_searched(tmp_path: Path) -> None:
    begin(tmp_path, Search(SPACE, sampler="random", trials=3))
    plan = searched(tmp_path)
    changed = {**plan.variants, "general": {"system.attention.score": "dot"}, "new": {"a": 1}}
    kept = tuple(plan.of("additive"))
    dataclasses.replace(plan, variants=changed, candidates=kept).write(tmp_path)
    assert advance(tmp_path)
    first = [trial.candidate.overrides for trial in left(tmp_path) if trial.seed == 0]
    scores = [overrides.get("system.attention.score") for overrides in first]
    assert scores == [*["dot"] * 3, *[None] * 3]
    grown = searched(tmp_path)
    assert grown.of("additive") == plan.of("additive")
    promoted = [one.variant for one in grown.candidates if one.promoted]
    assert promoted == ["additive", "general", "new"]


def test_settled_candidates_that_the_plan_has_lost_come_back(tmp_path: Path) -> None:
    """As when an experiment is changed and changed back."""
    begin(tmp_path, Search(SPACE, sampler="random", trials=3))
    plan = searched(tmp_path)
    dataclasses.replace(plan, candidates=()).write(tmp_path)
    assert advance(tmp_path) is False
    promoted = lambda plan: {one.id: one.promoted for one in plan.candidates}
    assert promoted(read(tmp_path)) == promoted(plan)


def scored(peak: float, number: int) -> float:
    """The loss at an evaluation: who has a small peak is ahead early, who has a large one at the
    end.
    """
    return abs(math.log(peak / 2e-3)) + (stub.STEPS - number) * peak * 30


class Hasty:
    """So many slots that take the jobs in any order and pause by chance."""

    def __init__(self, directory: Path, slots: int) -> None:
        self.directory, self.slots = directory, slots

    def run(self, due: Due) -> list[str]:
        jobs = random.Random(self.slots).sample(due(), len(due()))
        with ThreadPoolExecutor(self.slots) as slots:
            chances = [random.Random(f"{self.slots}{job.name}") for job in jobs]
            trials = [job.trials[0] for job in jobs]
            list(slots.map(train, [self.directory] * len(jobs), trials, chances))
        return []


def train(directory: Path, trial: Trial, chance: random.Random) -> None:
    """In place of training: evaluations by `scored`, from where the trial is to where it is to
    wait.
    """
    workdir, steps = trial.workdir(directory), trial.config["training"]["steps"]
    with RunLock(workdir), open(workdir / "metrics.jsonl", "a") as metrics:
        attempt = Attempt.start(workdir)
        made = [record["step"] for record in read_records(workdir / "metrics.jsonl")]
        for step in range(len(made) + 1, steps + 1):
            time.sleep(chance.choice((0, 0, 0.002)))
            loss = scored(trial.candidate.tuned["schedule.peak"], step) + trial.seed
            record = {"step": step, "split": "valid", "loss": loss}
            metrics.write(json.dumps(record) + "\n")
            metrics.flush()
            if step == trial.candidate.until:
                return attempt.end("interrupted", step, "waiting")
        (workdir / "valid.json").write_text(json.dumps(record))
        attempt.end("done", steps)


def course(directory: Path, slots: int, search: Search) -> dict[str, str]:
    """A whole search; what became of every trial."""
    board = Board(begin(directory, search), directory)
    assert Launcher(directory, Hasty(directory, slots), board, Stop()).train() == []
    return ends(directory)


def ends(directory: Path) -> dict[str, str]:
    """What became of every trial."""
    plan = read(directory)
    assert all(one.until is None for one in plan.candidates)
    seen = [look(trial, directory) for trial in plan.trials()]
    return {one.trial.name: f"{one.word} {one.step}: {one.message}" for one in seen}


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_the_same_trials_are_pruned_however_slots_are_timed(tmp_path: Path, sampler: str) -> None:
    """One slot and three, with other pauses every time: every trial comes to the same end at the
    same step, with the same records.
    """
    space = {"schedule.peak": log_uniform(1e-4, 1e-2)}
    search = Search(space, sampler=sampler, trials=9, pruner="halving")
    ends = [course(tmp_path / name, slots, search) for name, slots in (("one", 1), ("three", 3))]
    assert ends[0] == ends[1] and sum("pruned" in end for end in ends[0].values()) >= 6
    for name in ends[0]:
        records = (tmp_path / folder / "trials" / name for folder in ("one", "three"))
        assert len({(folder / "metrics.jsonl").read_text() for folder in records}) == 1


def test_all_of_a_round_are_compared_at_the_same_evaluation(tmp_path: Path) -> None:
    """Nobody is stopped before all of its round have come as far, and the best of them there go on,
    at least `finish` to the end.
    """
    begin(tmp_path, Search(SPACE, sampler="random", trials=9, pruner="halving"))
    assert advance(tmp_path)
    plan = read(tmp_path)
    # of 10 evaluations; then 3, then all
    assert {one.until for one in plan.candidates} == {1}
    trials = [Trial(one, 0) for one in plan.of("additive")]
    order = sorted(trials, key=loss)
    for trial in trials[:-1]:
        evaluate(trial, tmp_path, loss(trial))
    assert advance(tmp_path) and not any(look(trial, tmp_path).settled for trial in trials)
    open_ = [trial.candidate.id for trial in left(tmp_path) if is_left(trial, tmp_path)]
    additive = {trial.candidate.id for trial in trials}
    assert [one for one in open_ if one in additive] == [trials[-1].candidate.id]
    evaluate(trials[-1], tmp_path, loss(trials[-1]))
    assert advance(tmp_path)
    assert [look(trial, tmp_path).word for trial in order] == ["waiting"] * 3 + ["pruned"] * 6
    words = f"pruned after 1 of 10 evaluations: {loss(order[3]):.4g} is not among the best 3 of 9"
    assert look(order[3], tmp_path).message == words
    kept = [trial.candidate.id for trial in order[:3]]
    for one in read(tmp_path).of("additive"):
        assert one.until == (3 if one.id in kept else None)


def evaluate(trial: Trial, directory: Path, *losses: float) -> None:
    """Write the records of a trial that has made these evaluations, one a step, and waits."""
    valid = [{"split": "valid", "loss": loss, "macro_f1": loss} for loss in losses]
    records = [{"step": step, **record} for step, record in enumerate(valid, start=1)]
    records += [{"step": 99, "split": "train", "loss": 0.0}]
    synthetic.lines(trial.workdir(directory) / "metrics.jsonl", records)
    Attempt.start(trial.workdir(directory)).end("interrupted", len(losses), "waiting")


def test_a_setting_that_is_ahead_late_may_come_early(tmp_path: Path) -> None:
    """The best setting of `additive` is the worst at the first evaluation. In a round of two
    neither is stopped, whichever is first.
    """
    for folder, first in (("late", False), ("early", True)):
        directory = tmp_path / folder
        begin(directory, Search(SPACE, sampler="random", trials=2, pruner="halving"))
        advance(directory)
        plan = read(directory)
        for variant in plan.variants:
            slow, quick = (Trial(one, 0) for one in plan.of(variant))
            for trial in (slow, quick) if first else (quick, slow):
                evaluate(trial, directory, 9.0 if trial is slow else 1.0)
                assert advance(directory) and look(slow, directory).word != "pruned"
                stub.finish(trial, directory, loss=0.5 if trial is slow else 0.9)
        assert advance(directory) is False
        plan = read(directory)
        assert [plan.of(variant)[0].promoted for variant in plan.variants] == [True, True]


def test_pruned_trials_are_never_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the launcher is killed between stopping a trial and telling the study of it."""
    search = Search(SPACE, sampler="random", trials=3, pruner="halving")
    begin(tmp_path, search, select=("macro_f1", "max"))
    advance(tmp_path)
    plan = read(tmp_path)
    for variant in plan.variants:
        for value, one in zip((0.3, 0.9, 0.5), plan.of(variant), strict=True):
            evaluate(Trial(one, 0), tmp_path, value, value, value)
    monkeypatch.setattr(Study, "tell_pruned", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        advance(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(searching, "grow", lambda *_: [])
    assert advance(tmp_path)
    study = Study(tmp_path, Search.from_dict(plan.search or {}), plan.study("additive"), "max")
    assert [one.state for one in study.trials()] == ["pruned", "running", "running"]
    for variant in plan.variants:
        for one in plan.of(variant)[1:]:
            workdir = stub.finish(Trial(one, 0), tmp_path)
            record = {"split": "valid", "step": 9, "loss": 1.0, "macro_f1": 0.7}
            (workdir / "valid.json").write_text(json.dumps(record))
    assert advance(tmp_path) is False
    assert [one.promoted for one in read(tmp_path).of("additive")] == [False, True, False]
