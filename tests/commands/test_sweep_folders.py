"""Commands on the folder of a sweep, where no launcher is at work: `status` tells how far its trials
are, `stop` ends one from any terminal, `report`, `compare` and `export` write and print, and tell
mistakes in one line.
"""

import os
from pathlib import Path

import pytest

from attnlab.commands import export
from attnlab.commands.report import INTERVALS
from attnlab.experiments.report import TRACKERS
from attnlab.experiments.report.statistics.family import Family
from attnlab.records.attempts import Attempt
from attnlab.records.locks import RunLock
from tests.commands.tiny import refused, run_command
from tests.experiments import stub
from tests.experiments.synthetic import lines, sweep


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


@pytest.mark.quick
def test_a_trial_is_stopped_and_taken_back(tmp_path: Path) -> None:
    trial = stub.planned(tmp_path).trials()[0].name
    ended = run_command(["stop", str(tmp_path), trial, "--reason=of no use"])
    assert (ended.code, ended.out, ended.err) == (0, f"{trial} will not run\n", "")
    shown = run_command(["status", str(tmp_path)]).out
    assert f"{trial} stopped at step 0: stopped by request: of no use" in shown
    assert "1 stopped of 4" in shown
    again = refused("stop", str(tmp_path), trial)
    assert f"error: {trial} is stopped already, at step 0: there is nothing to stop" in again
    words = f"{trial} may run again: the next launcher takes it\n"
    assert run_command(["stop", str(tmp_path), trial, "--undo"]).out == words
    assert "1 interrupted of 4" in run_command(["status", str(tmp_path)]).out


@pytest.mark.quick
def test_report_writes_and_prints(tmp_path: Path) -> None:
    flags = ["--latex", "--interval=bootstrap"]
    printed = run_command(["report", str(sweep(tmp_path)), *flags]).out
    assert "verdict: supported (4 seeds)" in printed and str(tmp_path / "report.html") in printed
    assert "bootstrap (BCa" in (tmp_path / "report.md").read_text()
    assert r"\toprule" in (tmp_path / "report.tex").read_text()


def test_columns_of_the_latex_table(tmp_path: Path) -> None:
    directory = sweep(tmp_path)
    run_command(["report", str(directory), "--columns=variant, adjusted p"])
    assert r"variant & adjusted p \\" in (directory / "report.tex").read_text()
    line = refused("report", str(directory), "--columns=variant,adjusted")
    assert "--columns: no column 'adjusted'; did you mean 'adjusted p'?" in line


def test_every_kind_of_interval_has_its_flag() -> None:
    family = Family({"a": {0: 0.1, 1: 0.2, 2: 0.4}, "b": {0: 0.3, 1: 0.5, 2: 0.4}})
    assert len({family.mean("a", method).interval for method in INTERVALS}) == len(INTERVALS) == 2


@pytest.mark.quick
def test_compare_prints_and_writes(tmp_path: Path) -> None:
    first = sweep(tmp_path / "first", {"a": (0.9, 0.8)})
    second = sweep(tmp_path / "second", {"a": (0.95, 0.8)}, seeds=[0, 1])
    before = set(tmp_path.rglob("*"))
    printed = run_command(["compare", str(first), str(second)]).out
    assert "exact on the test split, higher is better" in printed
    assert "0.8500" in printed
    assert f"A: {first} (made)." in printed
    assert "Nothing on record differs but the numbers." in printed
    assert set(tmp_path.rglob("*")) == before
    for name, words in (("both.md", "## What differs between the two"), ("both.csv", "a,2,0.85")):
        run_command(["compare", str(first), str(second), f"--out={tmp_path / name}"])
        assert words in (tmp_path / name).read_text()


@pytest.mark.quick
def test_export_writes_and_says_so(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"additive": (0.9, 0.8)})
    for said in (
        "2 runs written, 0 replaced because their records have changed, 0 left",
        "0 runs written, 0 replaced because",
    ):
        out = run_command(["export", str(directory), "--to=tensorboard"]).out
        assert said in out and "look:   tensorboard --logdir" in out
    assert len(list((directory / "exports" / "tensorboard").rglob("*tfevents*"))) == 3


def test_every_tracker_has_its_word() -> None:
    assert set(export.TRACKERS) == set(TRACKERS)


def test_a_card_of_a_sweep_names_a_trial(tmp_path: Path) -> None:
    directory = sweep(tmp_path, {"additive": (0.9, 0.8)})
    for kind in ("card", "npz"):
        line = refused("export", str(directory), f"--to={kind}")
        assert f"{directory} is a sweep" in line and "trials/CANDIDATE" in line
    assert not (directory / "exports").exists()
