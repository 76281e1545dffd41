"""What is left to do, as jobs; which trials form a group, and the process that trains one: every
trial's folder is as if it had been alone.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.experiments.plan import Candidate, Plan, Trial
from attnlab.experiments.run import recorded, training
from attnlab.experiments.run.jobs import Job, finals, group, stacked, trainings
from attnlab.experiments.run.selection import freeze
from attnlab.records import attempts
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from attnlab.records.manifest import Manifest
from attnlab.records.stream import read_records
from attnlab.training.session import Outcome
from tests.commands.tiny import SHARED, SMALL
from tests.experiments import plans, stub


@pytest.mark.quick
def test_only_what_has_not_settled_is_left(tmp_path: Path) -> None:
    """In running order: the first seed of every candidate before the second of any."""
    plan = stub.planned(tmp_path)
    names = [job.name.rpartition("-")[0] + job.name[-1] for job in trainings(plan, None, tmp_path)]
    assert names == ["additive0", "general0", "additive1", "general1"]
    states = ("done", "failed", "interrupted", "diverged")
    for trial, state in zip(plan.trials(), states, strict=True):
        stub.finish(trial, tmp_path, state)
    (job,) = trainings(plan, None, tmp_path)
    assert job.trials == (plan.trials()[2],) and job.kind == "train"
    assert job.left(tmp_path) == [plan.trials()[2]]


def test_evaluations_of_chosen_candidates_by_candidate(tmp_path: Path) -> None:
    """Seeds that failed, and seeds that have their results, are not among them."""
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    for trial in plan.trials():
        failed = (trial.candidate.variant, trial.seed) == ("additive", 1)
        stub.finish(trial, tmp_path, "failed" if failed else "done")
    choice = freeze(plan, tmp_path)
    stub.looked_at(plan.trials()[0], tmp_path)
    # its pictures are missing
    (plan.trials()[1].workdir(tmp_path) / "results.json").write_text("{}")
    found = finals(plan, choice, tmp_path)
    seeds = [(job.trials[0].candidate.variant, [one.seed for one in job.trials]) for job in found]
    assert seeds == [("additive", [2]), ("general", [0, 1, 2])]
    assert found[1].name == f"{plan.candidates[1].id} on the test split"
    assert found[1].left(tmp_path) == list(found[1].trials)


def test_trials_that_fit_one_program_train_together(tmp_path: Path) -> None:
    """As many jobs as keep all slots busy; what differs in more than numbers stays apart."""
    plan = stub.planned(tmp_path, seeds=(0, 1, 2))
    jobs_ = trainings(plan, None, tmp_path)
    for slots, sizes in ((1, [3, 3]), (2, [3, 3]), (4, [2, 1, 2, 1]), (8, [1] * 6)):
        made = stacked(jobs_, slots)
        assert [len(job.trials) for job in made] == sizes
        names = sorted(trial.name for job in made for trial in job.trials)
        assert names == sorted(trial.name for trial in plan.trials())
    assert stacked(jobs_, 1)[0].name == f"{plan.trials()[0].name} and 2 more"
    assert stacked([], 2) == []
    evaluation = Job("final", tuple(plan.trials()[:3]))
    assert stacked([evaluation, *jobs_[:3]], 1) == [*stacked(jobs_[:3], 1), evaluation]


def candidate(name: str, *overrides: str) -> Candidate:
    """A tiny RNNsearch on dates."""
    settings = [*SMALL["rnnsearch"], *SHARED, "training.steps=6", *overrides]
    config = configs.load("configs/translation.py:rnnsearch", settings)
    return Candidate(name, name, {}, {}, json.loads(json.dumps(configs.to_dict(config))), 0, 0.0)


def plan(*candidates: Candidate, seeds: tuple[int, ...] = (0, 1)) -> Plan:
    """A sweep of these."""
    names = [one.variant for one in candidates]
    compared = {"variants": {name: {} for name in names}, "baseline": names[0], "claim": None}
    return dataclasses.replace(plans.plan(seeds=seeds), **compared, candidates=candidates)


@pytest.mark.quick
def test_groups_hold_what_shares_a_program_in_order() -> None:
    slow, fast = candidate("slow", "schedule.peak=1e-4"), candidate("fast", "schedule.peak=1e-3")
    other = candidate("other", "system.embedding=6")
    trials = plan(slow, other, fast).trials()
    names = [[trial.name for trial in group] for group in group(trials)]
    first = ["slow/seed0", "fast/seed0", "slow/seed1", "fast/seed1"]
    assert names == [first, ["other/seed0", "other/seed1"]]
    assert [len(group) for group in group(trials, most=3)] == [3, 1, 2]
    assert group([]) == []


@pytest.mark.full
def test_a_group_leaves_what_trials_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records, scores, manifest, attempts; a second process does nothing; one that is held is left
    for later.
    """
    # it would take the output of the tests
    monkeypatch.setattr(training, "write_output_to", lambda log: None)
    sweep = plan(candidate("one"), seeds=(0, 1, 2))
    sweep.write(tmp_path)
    first, second, third = sweep.trials()
    with RunLock(third.workdir(tmp_path)):
        assert training.run(tmp_path, sweep.trials()) == training.HELD
    for trial in (first, second):
        workdir = trial.workdir(tmp_path)
        records = read_records(workdir / "metrics.jsonl")
        assert [record["step"] for record in records] == [3, 6, 6]
        assert [record["split"] for record in records] == ["train", "train", "valid"]
        manifest = Manifest.read(workdir)
        assert manifest is not None and manifest.config == trial.config
        assert manifest.devices["stacked"] == 2
        assert set(manifest.data) == {"train", "valid"} and (workdir / "vocabulary").is_dir()
        assert json.loads((workdir / "valid.json").read_text())["split"] == "valid"
        assert events(workdir) == [("start", None), ("end", "done")]
    log = (second.workdir(tmp_path) / "log.txt").read_text()
    assert f"trained together with {first.name}" in log
    assert not (third.workdir(tmp_path) / "manifest.json").exists()
    assert training.run(tmp_path, [first, second]) == 0  # nothing is left to do
    assert [len(events(trial.workdir(tmp_path))) for trial in (first, second)] == [2, 2]


def trained(
    monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome | Exception, code: int = 0
) -> list[list[str]]:
    """Replace training: it ends so, or by the error. Returns the names of those that were trained
    together, by call.
    """
    calls: list[list[str]] = []

    def fit(
        trials: Sequence[Trial], attempts: Sequence[Attempt], directory: Path, began: float
    ) -> Any:
        calls.append([trial.name for trial in trials])
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        config = SimpleNamespace(training=SimpleNamespace(steps=6))
        workdirs = [trial.workdir(directory) for trial in trials]
        prepared = [SimpleNamespace(workdir=workdir, config=config) for workdir in workdirs]
        return prepared, outcomes, code

    monkeypatch.setattr(training, "write_output_to", lambda log: None)
    monkeypatch.setattr(training, "fit", fit)
    return calls


def swept(directory: Path, *seeds: int) -> list[Trial]:
    """The trials of a small sweep."""
    sweep = plan(Candidate("one", "one", {}, {}, {"training": {"steps": 6}}, 0, 0.0), seeds=seeds)
    sweep.write(directory)
    return sweep.trials()


@pytest.mark.parametrize(("seeds", "state"), [((0, 1, 2), "interrupted"), ((0,), "failed")])
def test_an_error_of_the_program_is_no_trials_failure(
    seeds: tuple[int, ...], state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless there is only one in it."""
    trials = swept(tmp_path, *seeds)
    trained(monkeypatch, RuntimeError("out of memory"))
    assert training.run(tmp_path, trials) == 1
    seen = [recorded(trial, tmp_path) for trial in trials]
    assert {(one.state, one.message) for one in seen} == {(state, "RuntimeError: out of memory")}


def test_each_trial_ends_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One without scores fails, and nobody else."""
    trials = swept(tmp_path, 0, 1, 2)
    trained(monkeypatch, Outcome("done", 6), Outcome("done", 6), Outcome("done", 6))

    def write_validation(prepared: Any, metric: str) -> None:
        assert metric == "loss"
        if prepared.workdir == trials[1].workdir(tmp_path):
            raise UserError("the best checkpoint is damaged")
        (prepared.workdir / "valid.json").write_text("{}")

    monkeypatch.setattr(training, "write_validation", write_validation)
    assert training.run(tmp_path, trials) == 1
    seen = [recorded(trial, tmp_path) for trial in trials]
    assert [one.state for one in seen] == ["done", "failed", "done"]
    assert seen[1].message == "the best checkpoint is damaged"
    ends = [events(trial.workdir(tmp_path))[-1] for trial in trials]
    assert ends == [("end", "done"), ("end", "failed"), ("end", "done")]


@pytest.mark.parametrize(
    ("states", "stopped", "code"), [(("interrupted", "diverged"), 143, 143), (("diverged",), 0, 1)]
)
def test_the_exit_code_tells_of_the_signal_first(
    states: tuple[str, ...], stopped: int, code: int, tmp_path: Path, monkeypatch: Any
) -> None:
    trials = swept(tmp_path, *range(len(states)))
    trained(monkeypatch, *[Outcome(state, 6) for state in states], code=stopped)
    assert training.run(tmp_path, trials) == code
    assert tuple(recorded(trial, tmp_path).state for trial in trials) == states


def test_what_has_settled_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed trial too, which runs again only when it is asked for."""
    trials = swept(tmp_path, 0, 1, 2)
    stub.finish(trials[0], tmp_path, "failed")
    stub.finish(trials[2], tmp_path, "diverged")
    calls = trained(monkeypatch, Outcome("diverged", 6))
    assert training.run(tmp_path, trials) == 1 and calls == [["one/seed1"]]
    assert training.run(tmp_path, trials) == 0 and len(calls) == 1


def events(workdir: Path) -> list[tuple[str, str | None]]:
    """Starts and ends."""
    records = [record for record in attempts.read(workdir) if record["event"] != "step"]
    return [(record["event"], record.get("state")) for record in records]
