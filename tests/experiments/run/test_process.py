"""The one entry of all processes of a sweep."""

from pathlib import Path

import pytest

from attnlab.experiments.run import process, scoring, training
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
    assert called == [
        ("training", tmp_path, (one,), slot),
        ("training", tmp_path, (one, two), slot),
        ("scoring", tmp_path, one.candidate.id),
    ]
