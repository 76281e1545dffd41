"""`sweep`: what is refused, and how it sets out; a real sweep is in tests/experiments/test_swept.py."""

from __future__ import annotations

import argparse
import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from attnlab.commands import sweep
from attnlab.errors import UserError
from attnlab.experiments import Search, choice, grid, planned
from attnlab.experiments.loading import Changes
from attnlab.experiments.running.queue import Queue
from attnlab.experiments.running.selection import Choice, freeze, wanted
from attnlab.experiments.running.slots import Slot
from attnlab.training.records import RunLock
from tests.commands.tiny import called
from tests.experiments import plans, real, stub


@pytest.mark.quick
def test_what_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    compare = 'compare=rows({"additive": {}, "general": {"system.attention.score": "general"}})'
    file = real.experiment(tmp_path / "which.py", compare, "budget=Budget(match='parameters', knob='system.maxout')")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").touch()
    (tmp_path / "file").touch()
    for argv, words in (
        ([file, f"--dir={tmp_path / 'thesis'}"], "is not empty and holds no sweep (chapter.tex is there); name a new or empty folder"),
        ([file, f"--dir={tmp_path / 'file'}"], "is not a folder; name another"),
        ([file, f"--dir={tmp_path / 'new'}", "--slots=0"], "--slots=0: expected a whole number of at least 1"),
        ([str(tmp_path / "wich.py"), f"--dir={tmp_path / 'new'}"], "did you mean"),
        ([file, f"--dir={tmp_path / 'new'}", "--retry-faild"], "unknown flag --retry-faild; did you mean '--retry-failed'"),
        ([file, f"--dir={tmp_path / 'new'}", "--executor=local", "--stack=maybe"], "invalid choice: 'maybe'"),
        ([file, f"--dir={tmp_path / 'new'}", "--seeds=0,one"], "--seeds=0,one: expected whole numbers with commas between, such as 0,1,2"),
        ([file, f"--dir={tmp_path / 'new'}", "--seeds=1,1"], "seeds is (1, 1); different whole numbers"),
        ([file, f"--dir={tmp_path / 'new'}", "--config.seed=3"], "'seed' is set like any other setting; name the seeds in"),
        ([file, f"--dir={tmp_path / 'new'}", "--config.system.maxout=9"], "this setting is solved for by the budget in the experiment"),
        ([file, f"--dir={tmp_path / 'new'}", "--config.system.attention.score.name=dot"], "this setting is compared in the experiment"),
        ([file, f"--dir={tmp_path / 'new'}", "--config.trainig.steps=3"], "no such key; did you mean 'training.steps'"),
    ):
        before = sorted(tmp_path.rglob("*"))
        ended = called(["sweep", *argv])
        assert ended.code == 2 and words in ended.err and ended.err.count("\n") == 1, ended.err
        assert sorted(tmp_path.rglob("*")) == before


def test_a_second_launcher_is_refused(tmp_path: Path) -> None:
    stub.planned(tmp_path / "sweep")
    with RunLock(tmp_path / "sweep"):
        ended = called(["sweep", "experiments/which.py", f"--dir={tmp_path / 'sweep'}"])
    assert ended.code == 2 and "another launcher is at work there (pid " in ended.err and ended.err.count("\n") == 1


def test_a_bad_variant_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: str, directory: Path, changes: Changes) -> None:
        raise UserError("variant 'general': config.system.widht: no such key")

    monkeypatch.setattr(planned, "ensure", refuse)
    ended = called(["sweep", "which.py", f"--dir={tmp_path / 'new'}"])
    assert ended.code == 2 and "variant 'general'" in ended.err and not (tmp_path / "new").exists()


@pytest.mark.quick
@pytest.mark.parametrize(
    ("stack", "environment", "together"),
    [("auto", {}, False), ("auto", {"CUDA_VISIBLE_DEVICES": "0"}, True), ("on", {}, True), ("off", {"CUDA_VISIBLE_DEVICES": "0"}, False)],
)
def test_where_trials_train_together(stack: str, environment: dict[str, str], together: bool, tmp_path: Path) -> None:
    stub.planned(tmp_path)
    arrange = sweep._arrangement(tmp_path, argparse.Namespace(stack=stack), [Slot(0, (), environment)])
    assert (arrange is not list) == together


def test_a_trial_lost_among_those_not_chosen_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}))
    for trial in plan.trials():
        lost = trial.candidate == plan.candidates[0] and trial.seed == plan.seeds[0]
        stub.finish(trial, tmp_path, "failed" if lost else "done")
    freeze(plan, tmp_path)
    monkeypatch.setattr(Queue, "run", lambda queue, jobs: [])
    arguments = argparse.Namespace(executor="local", stack="off", retry_failed=False, no_final=False)
    assert sweep.conduct(tmp_path, arguments, [Slot(0)]) == 1
    assert f"{plan.trials()[0].name} failed" in capsys.readouterr().err
    monkeypatch.setattr(Queue, "run", lambda queue, jobs: ["no slot stays"])
    assert sweep.conduct(tmp_path, argparse.Namespace(**{**vars(arguments), "no_final": True}), [Slot(0)]) == 1
    assert "no slot stays" in capsys.readouterr().err


@pytest.mark.quick
def test_where_a_sweep_is_kept_unless_told() -> None:
    assert sweep.default_directory("experiments/quickstart.py") == "runs/quickstart"
    assert sweep.default_directory("experiments/bottleneck.py:my/own folder") == "runs/bottleneck-my-own-folder"


def test_the_launcher_starts_without_jax() -> None:
    """`sweep --help` and all that the launcher imports."""
    code = (
        "import sys; from attnlab.commands import main; main(['sweep', '--help']); import attnlab.experiments.running.queue;"
        "sys.exit(any(name in sys.modules for name in ('jax', 'flax', 'numpy', 'scipy', 'matplotlib', 'optuna', 'submitit')))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=real.ROOT, check=False).returncode == 0


@pytest.mark.quick
def test_what_is_planned_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Candidates with their counts; before a search has any, what it will try."""
    sweep.show(plans.plan(), tmp_path)
    shown = capsys.readouterr().out
    assert "additive" in shown and "general" in shown and shown.endswith("4 trials: seeds 0, 1\n")
    searched = plans.plan(search=Search({"schedule.peak": choice(1e-3, 2e-3, 4e-3)}, sampler="grid", trials=3), seeds=(5, 1, 2))
    sweep.show(dataclasses.replace(searched, candidates=()), tmp_path)
    text = "3 settings of schedule.peak for each of 2 variants, with seed 5; the best of each with seeds 1, 2 too: at most 10 trials"
    assert capsys.readouterr().out == f"{searched.question}\nadditive, general\n{text}\n"
    assert sweep.outlook(dataclasses.replace(searched, seeds=(5,)), tmp_path).endswith("with seed 5: at most 6 trials")


def test_a_dry_run_counts_the_trials_that_will_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a variant whose choice is frozen only the chosen candidate's; what has settled is told."""
    plan = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}))
    for trial in plan.trials():
        stub.finish(trial, tmp_path)
    freeze(plan, tmp_path)
    grown = stub.planned(tmp_path, tune=grid({"schedule.peak": (0.1, 0.2)}), seeds=(0, 1, 2, 3))
    monkeypatch.setattr(planned, "draft", lambda file, directory, changes: grown)
    ended = called(["sweep", "which.py", f"--dir={tmp_path}", "--dry-run"])
    assert ended.code == 0, ended.err
    runs = len(wanted(grown, Choice.read(tmp_path)))
    assert (runs, len(grown.trials())) == (8, 16)
    assert ended.out.splitlines()[-1] == (
        "8 trials: seeds 0, 1, 2, 3; 4 of them have settled before; the choice is frozen (additive, general), "
        "so 8 trials of candidates that were not chosen are left out"
    )


def test_the_outlook_of_a_search_whose_choice_is_frozen(tmp_path: Path) -> None:
    """Nothing is searched for any more where all have their choice; what is new is."""
    search = Search({"schedule.peak": choice(1e-3, 2e-3)}, sampler="grid", trials=2)
    plan = stub.planned(tmp_path, search=search, tune=(), seeds=(0, 1))
    plan = plan.promote(one.id for one in plan.candidates)
    plan.write(tmp_path)
    for trial in plan.trials():
        stub.finish(trial, tmp_path)
    freeze(plan, tmp_path)
    assert sweep.outlook(plan, tmp_path) == "4 trials: seeds 0, 1; 4 of them have settled before"
    more = dataclasses.replace(plan, variants={**plan.variants, "dot": {"system.attention.score": "dot"}})
    assert sweep.outlook(more, tmp_path) == (
        "2 settings of schedule.peak for each of 1 variants, with seed 0; the best of each with seeds 1 too; "
        "4 of variants whose choice is frozen: at most 7 trials; 4 of them have settled before"
    )
