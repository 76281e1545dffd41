"""The launcher's side of planning: a process only where one is needed, its one line of complaint
passed on.
"""

import dataclasses
import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest

from attnlab.experiments.define.loading import Changes
from attnlab.experiments.plan import Plan
from attnlab.experiments.run import live
from attnlab.experiments.run import planning as planned
from attnlab.records import provenance
from attnlab.records.manifest import Manifest
from tests.experiments.plan.planning import SCORES
from tests.experiments.plans import experiment_file, plan
from tests.refusals import check_refused


@pytest.mark.usefixtures("inside")
def test_an_experiment_is_planned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own plans it: `run/test_swept.py` has a real one."""
    file = experiment_file(tmp_path / "which.py", SCORES)
    made = planned.ensure(file, tmp_path / "sweep")
    assert made == Plan.read(tmp_path / "sweep") and len(made.candidates) == 2
    monkeypatch.setattr(planned, "_planned", None)
    assert planned.ensure(file, tmp_path / "sweep") == made
    assert planned.draft(file, tmp_path / "sweep") == made
    points: list[tuple[str, dict[str, Any]]] = [("general", {}), ("additive", {})]
    assert planned.grow(tmp_path / "sweep", points) == [made.candidates[1], made.candidates[0]]


@pytest.mark.usefixtures("inside")
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
    first, *others = plan().candidates
    config = {**first.config, "name": "gone:Own"}
    code = provenance.code(config)
    for folder, digests in (("old", None), ("sweep", code.digests)):
        own = dataclasses.replace(first, config=config, code=digests)
        made = dataclasses.replace(plan(), candidates=(own, *others))
        made.write(tmp_path / folder)
    workdir = made.trials()[0].workdir(tmp_path / "sweep")
    (workdir / "checkpoints" / "4" / "state").mkdir(parents=True)
    Manifest.build(config, devices={}, data={}, own_code=code.record()).write(workdir)
    (tmp_path / "gone.py").unlink()
    monkeypatch.setattr(planned, "_planned", None)
    expected = r"seed0 was made with other code: .*gone\.py is gone; put that back"
    check_refused(expected, planned.ensure, file, tmp_path / "sweep")
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(planned, "_planned", lambda *given: asked.append(given) or made)
    accepted = Changes(accept=True)
    assert planned.draft(file, tmp_path / "sweep", accepted) == made
    assert asked == [("made", file, tmp_path / "sweep", accepted)]
    assert capfd.readouterr().err == ""
    (tmp_path / "gone.py").write_text("class Own:\n    x = 1\n")
    planned.draft(file, tmp_path / "old")  # of before code was kept
    words = "does not say what code it was planned with, so nobody knows whether gone is the same"
    assert capfd.readouterr().err == f"note: {tmp_path / 'old'} {words}\n"


DIES = """
import multiprocessing, os

if multiprocessing.current_process().name == "planning":
    print("one", "two", sep="\\n", flush=True)
    os._exit(1)
"""


def test_a_process_of_its_own_plans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What it complains of is one line; what it printed is shown only if it dies."""
    monkeypatch.setattr(live, "PRELOAD", ())
    monkeypatch.setattr(planned, "PATIENCE", 0.0)
    wrong = "compare=rows({'a': {}, 'b': {'system.attention.score': 'genral'}})"
    file = experiment_file(tmp_path / "which.py", wrong)
    words = r"^variant 'b': config.system.attention.score: unknown score 'genral'; did you mean 'g"
    check_refused(words, planned.ensure, file, tmp_path / "sweep")
    assert capfd.readouterr().err == ""
    dies = experiment_file(tmp_path / "dies.py", SCORES, imports=DIES)
    check_refused(r"planning failed \(exit code 1\): two", planned.ensure, dies, tmp_path / "sweep")
    assert capfd.readouterr().err == "one\n" and not (tmp_path / "sweep").exists()


def test_how_far_planning_is(capsys: pytest.CaptureFixture[str]) -> None:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    sender.send((3, 12))
    threading.Timer(0.5, sender.send, [("", "the plan")]).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planned, "PATIENCE", 0.1)
        assert planned._answer(receiver) == ("", "the plan")
    assert capsys.readouterr().err == "planning: 3 of 12 candidates\n"


@pytest.mark.usefixtures("inside")
def test_cores_are_written_with_the_plan(tmp_path: Path) -> None:
    """In one piece, so that a launcher killed at any moment leaves no plan without them; they stay,
    and trials that began with any keep those.
    """
    file, directory = experiment_file(tmp_path / "which.py", SCORES), tmp_path / "sweep"
    made = planned.ensure(file, directory, cores=lambda plan: len(plan.candidates))
    assert made == planned.ensure(file, directory, cores=lambda plan: 5) == Plan.read(directory)
    assert made.cores == 2
    dataclasses.replace(made, cores=None).write(directory)
    assert planned.ensure(file, directory, cores=lambda plan: 5).cores == 5
    dataclasses.replace(made, cores=None).write(directory)
    made.trials()[0].workdir(directory).mkdir(parents=True)
    assert planned.ensure(file, directory, cores=lambda plan: 5).cores is None
    for given, kept in ((None, "all"), ("best", "best"), (None, "best"), ("all", "all")):
        assert planned.ensure(file, directory, Changes(keep=given)).keep == kept


def test_a_plain_mistake_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "_planned", None)
    file = experiment_file(tmp_path / "which.py", SCORES, "baseline='additiv'")
    words = "baseline is 'additiv'; did you mean 'additive'"
    check_refused(words, planned.ensure, file, tmp_path / "sweep")
    plan().write(tmp_path / "sweep")
    words = "holds another experiment: its name is 'which', here 'other'"
    other = experiment_file(tmp_path / "other.py", SCORES)
    check_refused(words, planned.ensure, other, tmp_path / "sweep")
    check_refused("holds no sweep", planned.grow, tmp_path / "nowhere", [])
