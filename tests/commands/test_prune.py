"""`prune DIR`: it lists, takes with `--yes`, and what remains is used as before."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.plan import Plan
from attnlab.records.attempts import reopen
from attnlab.records.locks import RunLock
from attnlab.records.states import saved_steps
from tests.commands.tiny import arguments, run_command
from tests.experiments.synthetic import sweep


@pytest.fixture
def finished(searched: Path, tmp_path: Path) -> Path:
    """A copy of a finished run."""
    return Path(shutil.copytree(searched, tmp_path / "run"))


def without_seconds(scores: str) -> dict[str, Any]:
    """Scores as they are printed, without the time that they took."""
    return {**json.loads(scores), "decoding_seconds": None}


def test_a_pruned_run_is_evaluated_as_before_and_refuses_to_train(finished: Path) -> None:
    scored = ["evaluate", f"--workdir={finished}", "--split=valid", "--json"]
    before = without_seconds(run_command(scored).out)
    listed = run_command(["prune", str(finished), "--keep=best-params"])
    assert listed.code == 0 and "would go: " in listed.out and "--yes takes it" in listed.out
    assert saved_steps(finished / "checkpoints") == [8, 12]
    taken = run_command(["prune", str(finished), "--keep=best-params", "--yes"])
    assert taken.code == 0 and taken.out.splitlines()[-1].startswith("gone: ")
    assert saved_steps(finished / "checkpoints") == [] and saved_steps(finished / "params") == [12]
    assert without_seconds(run_command(scored).out) == before
    for flags in ([], ["--keep=best-params"]):
        again = run_command(["prune", str(finished), *flags, "--yes"])
        assert (again.code, again.out) == (0, "would go: nothing\n")
    refused = run_command(arguments("rnnsearch", finished))
    assert refused.code == 2 and "optimizer's state is gone" in refused.err
    assert len(refused.err.splitlines()) == 1


def test_a_run_at_work_or_not_done_is_left(finished: Path) -> None:
    with RunLock(finished):
        held = run_command(["prune", str(finished), "--yes"])
    assert held.code == 2 and "is at work (pid" in held.err
    reopen(finished)
    left = run_command(["prune", str(finished), "--yes"])
    assert left.code == 2 and "is interrupted at step 12 of 12" in left.err
    assert saved_steps(finished / "checkpoints") == [8, 12]


def test_of_a_sweep_the_trials_that_are_done(finished: Path, tmp_path: Path) -> None:
    directory = sweep(tmp_path / "sweep", {"additive": (0.9, float("nan"))})
    (trial,) = (path.parent for path in directory.glob("trials/*/*/results.json"))
    shutil.copytree(finished / "checkpoints", trial / "checkpoints")
    with RunLock(directory):
        assert "is at work" in run_command(["prune", str(directory), "--yes"]).err
    for path in directory.glob("trials/*/*"):
        with RunLock(path):
            assert "is at work" in run_command(["prune", str(directory), "--yes"]).err
    taken = run_command(["prune", str(directory), "--yes"])
    assert taken.code == 0 and "of 1 runs; 1 trials that are not done keep" in taken.out
    assert saved_steps(trial / "checkpoints") == [12]
    plan = Plan.of_sweep(directory)
    dataclasses.replace(plan, keep="best").write(directory)
    assert Plan.of_sweep(directory).keep == "best"


@pytest.mark.parametrize("kind", ["missing", "file", "empty"])
def test_what_is_no_run_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "ünknown"
    if kind == "empty":
        path.mkdir()
    elif kind == "file":
        path.write_text("")
    refused = run_command(["prune", str(path), "--yes"])
    assert refused.code == 2 and len(refused.err.splitlines()) == 1
    assert path.is_dir() == (kind == "empty") and not (path.is_dir() and list(path.iterdir()))
