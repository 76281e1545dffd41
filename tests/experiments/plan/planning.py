"""Plans of experiment files that tests write, without lowering anything."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

from attnlab.errors import UserError
from attnlab.experiments.plan import building
from attnlab.experiments.plan import process as planning
from attnlab.experiments.plan.building import Builder
from attnlab.experiments.plan.flops import Work
from attnlab.experiments.plan.plan import Plan
from attnlab.experiments.plan.process import made
from attnlab.tasks import TASKS, models
from tests.experiments.plans import experiment_file

SCORES = "compare=rows({'additive': {}, 'general': {'system.attention.score': 'general'}})"


WIDER = "compare=rows({'additive': {}, 'wide': {'system.encoder': 10}})"


WIDEST = "compare=rows({'additive': {}, 'widest': {'system.encoder': 40}})"


SEARCH = "from attnlab.experiments.define.search import Search, choice, log_uniform"


shared_builder = functools.cache(Builder)


def count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parameters are counted by the shapes that building a system has found, and not traced for
    that again.
    """
    found: dict[str, Any] = {}
    counted = building._parameters

    def shapes_of(system: Any, *inputs: Any) -> Any:
        made = models.shapes_of(system, *inputs)
        found[repr(system)] = made["params"]
        return made

    def parameters(task: Any) -> int:
        known = found.get(repr(task.system))
        return counted(task) if known is None else sum(one.size for one in jax.tree.leaves(known))

    monkeypatch.setattr(building, "_parameters", parameters)
    for name in TASKS.names():
        TASKS.resolve(name)  # is imported
    for name, module in list(sys.modules.items()):
        uses = name.startswith("attnlab.tasks.") and hasattr(module, "shapes_of")
        if uses and module is not models:
            monkeypatch.setattr(module, "shapes_of", shapes_of)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOPs without lowering anything (`test_flops` has them), and builders that the tests
    share.
    """
    count_once(monkeypatch)
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
