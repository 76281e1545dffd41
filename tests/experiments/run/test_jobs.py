"""What is left to do, as jobs."""

from pathlib import Path

import pytest

from attnlab.experiments.run.jobs import Job, finals, stacked, training
from attnlab.experiments.run.selection import freeze
from tests.experiments import stub


@pytest.mark.quick
def test_only_what_has_not_settled_is_left(tmp_path: Path) -> None:
    """In running order: the first seed of every candidate before the second of any."""
    plan = stub.planned(tmp_path)
    names = [job.name.rpartition("-")[0] + job.name[-1] for job in training(plan, None, tmp_path)]
    assert names == ["additive0", "general0", "additive1", "general1"]
    states = ("done", "failed", "interrupted", "diverged")
    for trial, state in zip(plan.trials(), states, strict=True):
        stub.finish(trial, tmp_path, state)
    (job,) = training(plan, None, tmp_path)
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
    jobs_ = training(plan, None, tmp_path)
    for slots, sizes in ((1, [3, 3]), (2, [3, 3]), (4, [2, 1, 2, 1]), (8, [1] * 6)):
        made = stacked(jobs_, slots)
        assert [len(job.trials) for job in made] == sizes
        names = sorted(trial.name for job in made for trial in job.trials)
        assert names == sorted(trial.name for trial in plan.trials())
    assert stacked(jobs_, 1)[0].name == f"{plan.trials()[0].name} and 2 more"
    assert stacked([], 2) == []
    evaluation = Job("final", tuple(plan.trials()[:3]))
    assert stacked([evaluation, *jobs_[:3]], 1) == [*stacked(jobs_[:3], 1), evaluation]
