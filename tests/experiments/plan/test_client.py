"""The launcher's side of planning: a process only where one is needed, its one line of complaint
passed on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from attnlab.errors import UserError
from attnlab.experiments.define.loading import Changes
from attnlab.experiments.plan import client as planned
from attnlab.experiments.plan import process
from attnlab.experiments.plan.plan import Plan
from attnlab.records import provenance
from attnlab.records.manifest import Manifest
from tests.experiments.plans import experiment_file, plan

SCORES = "compare=rows({'additive': {}, 'general': {'system.attention.score': 'general'}})"


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the planning process does is done in this one, which has imported all of it."""

    def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = process.main(command[command.index(process.__name__) + 1 :])
        return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())

    monkeypatch.setattr(planned, "subprocess", types.SimpleNamespace(run=run))


@pytest.mark.usefixtures("inside", "quick")
def test_an_experiment_is_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own plans it: `run/test_swept.py` has a real one."""
    file = experiment_file(tmp_path / "which.py", SCORES)
    made = planned.ensure(file, tmp_path / "sweep")
    assert made == Plan.read(tmp_path / "sweep") and len(made.candidates) == 2
    monkeypatch.setattr(planned, "subprocess", None)
    assert planned.ensure(file, tmp_path / "sweep") == made
    assert planned.draft(file, tmp_path / "sweep") == made
    points: list[tuple[str, dict[str, Any]]] = [("general", {}), ("additive", {})]
    assert planned.grow(tmp_path / "sweep", points) == [made.candidates[1], made.candidates[0]]


@pytest.mark.usefixtures("inside", "quick")
def test_what_the_command_line_changes_is_part_of_the_experiment(tmp_path: Path) -> None:
    file = experiment_file(tmp_path / "which.py", "compare=rows({'additive': {}})")
    changes = Changes(("training.steps=7",), (4, 2))
    made = planned.ensure(file, tmp_path / "sweep", changes)
    assert made.seeds == (4, 2)
    assert {one.config["training"]["steps"] for one in made.candidates} == {7}
    assert {trial.config["seed"] for trial in made.trials()} == {4, 2}
    assert planned.draft(file, tmp_path / "sweep", changes) == made
    assert planned.draft(file, tmp_path / "sweep") != made


def test_that_changed_code_is_accepted_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A begun trial of code that is no more: the launcher refuses it alone, and asks the planning
    process where it is accepted.
    """
    file = experiment_file(tmp_path / "which.py", SCORES)
    (tmp_path / "gone.py").write_text("class Own:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    made = plan()
    config = {**made.candidates[0].config, "name": "gone:Own"}
    code = provenance.of(config)
    candidates = (
        dataclasses.replace(made.candidates[0], config=config, code=code.digests),
        *made.candidates[1:],
    )
    made = dataclasses.replace(made, candidates=candidates)
    made.write(tmp_path / "sweep")
    old = dataclasses.replace(made.candidates[0], code=None)
    dataclasses.replace(made, candidates=(old, *made.candidates[1:])).write(tmp_path / "old")
    workdir = made.trials()[0].workdir(tmp_path / "sweep")
    (workdir / "checkpoints" / "4").mkdir(parents=True)
    Manifest.build(config, devices={}, data={}, own_code=code.record()).write(workdir)
    (tmp_path / "gone.py").unlink()
    monkeypatch.setattr(subprocess, "run", None)
    expected = r"seed0 was made with other code: .*gone\.py is gone; put that back"
    with pytest.raises(UserError, match=expected):
        planned.ensure(file, tmp_path / "sweep")
    asked: list[list[str]] = []
    monkeypatch.setattr(planned, "_run", lambda words, given="": asked.append([*words]))
    planned.ensure(file, tmp_path / "sweep", Changes(accept=True))
    assert asked == [[file, str(tmp_path / "sweep"), "--accept-changed-code"]]
    assert capfd.readouterr().err == ""
    (tmp_path / "gone.py").write_text("class Own:\n    x = 1\n")
    monkeypatch.setattr(Plan, "of_sweep", Plan.read)
    planned.ensure(file, tmp_path / "old")  # of before code was kept
    assert capfd.readouterr().err == (
        f"note: {tmp_path / 'old'} does not say what code it was planned with, so nobody knows"
        " whether gone is the same\n"
    )


@pytest.mark.usefixtures("inside")
def test_what_the_process_complains_of_is_one_line(tmp_path: Path) -> None:
    file = experiment_file(
        tmp_path / "which.py", "compare=rows({'a': {}, 'b': {'system.attention.score': 'genral'}})"
    )
    with pytest.raises(UserError) as caught:
        planned.ensure(file, tmp_path / "sweep")
    assert str(caught.value).startswith(
        "variant 'b': config.system.attention.score: unknown score 'genral'; did you mean 'general'"
    )
    assert not (tmp_path / "sweep").exists()


def test_a_process_that_dies_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho one >&2; echo two >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    file = experiment_file(tmp_path / "which.py", SCORES)
    with pytest.raises(UserError, match=r"planning failed \(exit code 1\): two"):
        planned.ensure(file, tmp_path / "sweep")
    assert capfd.readouterr().err == "one\n"


def test_a_mistake_that_needs_no_model_starts_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "run", None)
    with pytest.raises(UserError, match="baseline is 'additiv'; did you mean 'additive'"):
        planned.ensure(
            experiment_file(tmp_path / "which.py", SCORES, "baseline='additiv'"), tmp_path / "sweep"
        )
    plan().write(tmp_path / "sweep")
    words = "holds another experiment: its name is 'which', here 'other'"
    with pytest.raises(UserError, match=words):
        planned.ensure(experiment_file(tmp_path / "other.py", SCORES), tmp_path / "sweep")
    with pytest.raises(UserError, match="holds no sweep"):
        planned.grow(tmp_path / "nowhere", [])
