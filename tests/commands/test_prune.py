"""`prune DIR`: it lists, takes with `--yes`, and what remains is used as before."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from attnlab.records.attempts import reopen
from attnlab.records.locks import RunLock
from attnlab.training.pruning import saved_steps
from tests.commands.tiny import arguments, refused, run_command
from tests.experiments.synthetic import sweep


@pytest.fixture
def finished(searched: Path, tmp_path: Path) -> Path:
    """A copy of a finished run with the states 8 and 12."""
    return Path(shutil.copytree(searched, tmp_path / "run"))


def evaluated(folder: Path) -> dict[str, Any]:
    """The scores of a run, without the time that they took."""
    scores = run_command(["evaluate", f"--workdir={folder}", "--split=valid", "--json"]).out
    return {**json.loads(scores), "decoding_seconds": None}


def test_a_pruned_run_is_evaluated_as_before_and_refuses_to_train(finished: Path) -> None:
    before, command = evaluated(finished), ["prune", str(finished), "--keep=best-params"]
    listed = run_command(command)
    assert listed.code == 0 and "; --yes takes it" in listed.out
    assert saved_steps(finished / "checkpoints") == [8, 12]
    assert "gone: " in run_command([*command, "--yes"]).out
    assert saved_steps(finished / "checkpoints") == [] and saved_steps(finished / "params") == [12]
    assert evaluated(finished) == before
    assert run_command(command[:2]).out == "would go: nothing\n"
    assert "optimizer's state is gone" in refused(*arguments("rnnsearch", finished))


def test_a_run_at_work_not_done_or_not_scored_is_left(finished: Path) -> None:
    command = ["prune", str(finished), "--yes"]
    with RunLock(finished):
        assert "is at work (pid" in run_command(command).err
    (finished / "results.json").unlink()
    assert f"is not scored yet ('train --workdir={finished}' does it)" in run_command(command).err
    reopen(finished)
    assert "is interrupted at step 12" in run_command(command).err
    assert saved_steps(finished / "checkpoints") == [8, 12]


def test_of_a_sweep_the_trials_that_are_done(finished: Path, tmp_path: Path) -> None:
    directory = sweep(tmp_path / "sweep", {"additive": (0.9, float("nan"))})
    (trial,) = (path.parent for path in directory.glob("trials/*/*/results.json"))
    shutil.copytree(finished / "checkpoints", trial / "checkpoints")
    command = ["prune", str(directory), "--yes"]
    for path in (directory, *directory.glob("trials/*/*")):
        with RunLock(path):
            assert "is at work" in run_command(command).err
    taken = run_command(command)
    assert "1 of 2 trials are not done" in taken.out and "22 files" not in taken.out
    assert saved_steps(trial / "checkpoints") == [12]


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "ünknown", tmp_path, Path(__file__)):
        refused("prune", str(path), "--yes")
    assert not list(tmp_path.iterdir())
