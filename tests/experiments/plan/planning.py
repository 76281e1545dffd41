"""Plans of experiment files that tests write, without lowering anything."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments.plan import building
from attnlab.experiments.plan import process as planning
from attnlab.experiments.plan.building import Builder
from attnlab.experiments.plan.flops import Work
from attnlab.experiments.plan.plan import Plan
from attnlab.experiments.plan.process import made
from tests.experiments.plans import experiment_file

SCORES = "compare=rows({'additive': {}, 'general': {'system.attention.score': 'general'}})"


WIDER = "compare=rows({'additive': {}, 'wide': {'system.encoder': 10}})"


WIDEST = "compare=rows({'additive': {}, 'widest': {'system.encoder': 40}})"


SEARCH = "from attnlab.experiments.define.search import Search, choice, log_uniform"


shared_builder = functools.cache(Builder)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOPs without lowering anything (`test_flops` has them), and builders that the tests
    share.
    """
    flops = lambda config, task: 1000.0 * config.system.decoder + 50.0 * config.system.encoder
    monkeypatch.setattr(building, "step_flops", flops)
    monkeypatch.setattr(
        building,
        "step_work",
        lambda config, task: Work(flops(config, task), 70.0, 1, ("decoder/idle",)),
    )
    monkeypatch.setattr(planning, "Builder", shared_builder)


def planned(tmp_path: Path, *lines: str, imports: str = "") -> Plan:
    """Plan an experiment file in `tmp_path/sweep` and write the plan there."""
    plan = made(experiment_file(tmp_path / "which.py", *lines, imports=imports), tmp_path / "sweep")
    plan.write(tmp_path / "sweep")
    return plan


def refused(tmp_path: Path, *lines: str, imports: str = "") -> str:
    """The message of a file that cannot be planned; nothing is written."""
    with pytest.raises(UserError) as caught:
        planned(tmp_path, *lines, imports=imports)
    return str(caught.value)
