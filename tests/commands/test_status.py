"""`status` tells how far the trials of a sweep are, where no launcher is at work."""

import os
from pathlib import Path

import pytest

from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from tests.commands.tiny import run_command
from tests.experiments import stub
from tests.experiments.synthetic import lines


@pytest.mark.quick
def test_the_table_the_troubles_and_the_counts(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    stub.finish(plan.trials()[0], tmp_path)
    stub.finish(plan.trials()[1], tmp_path, "failed")
    before = sorted(tmp_path.rglob("*"))
    ended = run_command(["status", str(tmp_path)])
    assert ended.code == 0 and ended.err == ""
    title, columns, _, first, second, _, best, heads, _, additive, general, _, trouble, summary = (
        ended.out.splitlines()
    )
    assert best == "best so far"
    assert heads.split() == ["variant", "loss,", "validation", "trial", "done"]
    assert additive.split() == ["additive", "1", plan.trials()[0].name, "1/2"]
    assert general.split() == ["general", "-", "-", "0/2"]
    assert title == "which" and columns.split() == ["trial", "seed", "0", "seed", "1"]
    assert first.split() == [plan.candidates[0].id, "done", "pending"]
    assert second.split()[1:] == ["failed", "10", "pending"]
    assert trouble == f"{plan.candidates[1].id}/seed0 failed at step 10: failed on purpose"
    assert summary == "1 done, 2 pending, 1 failed of 4"  # and no time left, for nobody is at work
    assert sorted(tmp_path.rglob("*")) == before


def test_what_runs_shows_its_metric_and_when_it_was_heard_of(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    workdir = plan.trials()[1].workdir(tmp_path)
    workdir.mkdir(parents=True)
    Attempt.start(workdir)
    metrics = ((2, "valid", 0.5), (3, "train", 0.1), (4, "valid", 0.75))
    records = [{"step": step, "split": split, "loss": loss} for step, split, loss in metrics]
    lines(workdir / "metrics.jsonl", records)
    with RunLock(workdir):
        told = run_command(["status", str(tmp_path)]).out.splitlines()
    row = told[told.index("running") + 3].split()
    assert row[:4] == [plan.trials()[1].name, "0/10", "0.75", "4"]
    assert row[5:8] == ["ago", "pid", str(os.getpid())]
    best = [line.split()[:2] for line in told if line.startswith("general")][-1]
    assert best == ["general", "0.5"]


def test_watching_ends_when_all_has_settled(tmp_path: Path) -> None:
    plan = stub.planned(tmp_path)
    for trial in plan.trials():
        stub.finish(trial, tmp_path)
    assert run_command(["status", str(tmp_path), "--watch"]).out.endswith("4 done of 4\n")
