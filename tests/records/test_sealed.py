"""The seal on the test split of a sweep's trials; which records are no longer what a run left."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from ml_collections import ConfigDict

from attnlab.analysis.results import report
from attnlab.errors import UserError
from attnlab.experiments import grid
from attnlab.experiments.plan import Trial
from attnlab.experiments.run.selection import freeze
from attnlab.records.sealed import (
    altered_records,
    check_no_trial,
    check_test_split,
    sweep_of,
    write_results,
)
from attnlab.training.run import Run
from tests.experiments import stub
from tests.refusals import check_refused


@pytest.mark.quick
def test_the_test_split_is_closed_until_the_choice_is_frozen_and_for_all_that_was_not_chosen(
    tmp_path: Path,
) -> None:
    plan = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}))
    for candidate in plan.candidates:
        for seed in plan.seeds:
            stub.finish(Trial(candidate, seed), tmp_path, "done", candidate.tuned["schedule.peak"])
    chosen, other = (Trial(candidate, 0).workdir(tmp_path) for candidate in plan.of("additive"))
    closed = "whose choice is not frozen yet: its test split stays closed"
    for workdir in (chosen, other):
        check_refused(closed, check_test_split, workdir)
        # nor does code get there that goes round the commands
        check_refused(closed, report, ConfigDict(), None, workdir)
        check_refused(closed, Run.prepare, None, ConfigDict(), workdir, ("train", "test"))
    freeze(plan, tmp_path)
    check_test_split(chosen)
    words = "was not chosen in the sweep .*: its test split stays closed"
    check_refused(words, check_test_split, other)
    parent = {"workdir": "gone", "config_hash": "", "step": 1, "data_from": 0, "joined": True}
    for trial in (chosen, other):  # what goes on from a trial is as open as that
        child = tmp_path / f"after-{trial.parent.name}"
        child.mkdir()
        record = {"parent": {**parent, "trial": str(trial)}}
        (child / "manifest.json").write_text(json.dumps(record))
        with pytest.raises(UserError, match=words) if trial is other else nullcontext():
            check_test_split(child)
    (tmp_path / "choice.json").write_text('{"made": 1}')
    check_refused("choice.json is damaged", check_test_split, chosen)


def test_trials_behind_a_link_are_trials(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path / "sweep")
    workdir = stub.finish(plan.trials()[0], tmp_path / "sweep")
    (tmp_path / "sweep" / "trials").rename(tmp_path / "elsewhere")
    (tmp_path / "sweep" / "trials").symlink_to(tmp_path / "elsewhere")
    check_refused("its test split stays closed", check_test_split, workdir)


def test_any_other_folder_is_nobodys_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = stub.planned(tmp_path / "sweep")
    workdir = stub.finish(plan.trials()[0], tmp_path / "sweep")
    for folder in (tmp_path, tmp_path / "sweep", Path("/"), tmp_path / "trials" / "a" / "seed0"):
        assert sweep_of(folder) is None
        check_test_split(folder)
        check_no_trial(folder)
    monkeypatch.chdir(workdir.parent)
    assert sweep_of("seed0") == (tmp_path / "sweep").resolve()  # however it is spelt
    words = "--workdir=seed0 is a trial of the sweep .*: 'sweep' trains it"
    check_refused(words, check_no_trial, "seed0")


@pytest.mark.quick
def test_records_that_were_edited_or_removed_are_named(tmp_path: Path) -> None:
    assert altered_records(tmp_path) is None
    for name in ("items.npz", "metrics.jsonl"):
        (tmp_path / name).write_text(name)
    write_results(tmp_path, "results.json", {"answers.txt": "answers"})
    assert altered_records(tmp_path) == []
    (tmp_path / "metrics.jsonl").write_text("metrics.jsonl ")
    (tmp_path / "results.json").write_text("Results.json")
    (tmp_path / "answers.txt").unlink()
    assert altered_records(tmp_path) == ["metrics.jsonl", "answers.txt", "results.json"]
    (tmp_path / "digests.json").write_text("{")
    check_refused(r"digests.json is damaged", altered_records, tmp_path)
