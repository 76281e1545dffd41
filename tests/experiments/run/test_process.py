"""The one entry of all processes of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnlab.experiments.plan import fix_cores
from attnlab.experiments.run import process, scoring, slots, training
from attnlab.experiments.run.jobs import Job
from attnlab.experiments.run.slots import Slot
from tests.experiments import stub


def test_each_kind_of_job_goes_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, slot = stub.planned(tmp_path), Slot(0)
    called: list[tuple[object, ...]] = []
    for module in (training, scoring):
        name = module.__name__.rpartition(".")[2]
        run = lambda *given, name=name: called.append((name, *given)) or 7
        monkeypatch.setattr(module, "run", run)
    one, two = plan.trials()[:2]
    for job in (Job("train", (one,)), Job("train", (one, two)), Job("final", (one,))):
        assert process.perform(tmp_path, job, slot) == 7
    assert process.main([str(tmp_path), "train", one.name, two.name]) == 7
    assert called == [
        ("training", tmp_path, (one,), slot),
        ("training", tmp_path, (one, two), slot),
        ("scoring", tmp_path, one.candidate.id),
        ("training", tmp_path, (one, two), None),
    ]


def test_fewer_cores_than_planned_are_refused_with_what_can_be_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """This process has no flags: those that are named are of the commands that are named."""
    monkeypatch.setattr(process, "usable_cores", lambda: [0])
    monkeypatch.setattr(slots, "usable_gpus", lambda: [])
    plan = stub.planned(tmp_path)
    fix_cores(tmp_path, 2)
    assert process.main([str(tmp_path), "train", plan.trials()[0].name]) == 2
    words = "another machine, or with 'sweep' or 'work' fewer --slots or --accept-cores (as many"
    assert words in capsys.readouterr().err


def test_a_wrong_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert process.main([str(tmp_path / "elsewhere"), "train", "additive-0a1b2c3d/seed0"]) == 2
    words = f"error: {tmp_path / 'elsewhere'} holds no sweep (no plan.json in it); 'sweep FILE.py"
    assert capsys.readouterr().err.startswith(words)
