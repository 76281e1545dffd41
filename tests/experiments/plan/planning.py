"""Plans of experiment files that tests write, whose counts are estimated."""

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.analysis.work import Work
from attnlab.errors import UserError
from attnlab.experiments.plan import Plan, building
from attnlab.experiments.plan import process as planning
from attnlab.experiments.plan.building import Builder
from attnlab.experiments.plan.process import made
from attnlab.experiments.run import planning as in_a_process
from tests.experiments.plans import experiment_file

SCORES = "compare=rows({'additive': {}, 'general': {'system.attention.score': 'general'}})"


WIDER = "compare=rows({'additive': {}, 'wide': {'system.encoder': 10}})"


WIDEST = "compare=rows({'additive': {}, 'widest': {'system.encoder': 40}})"


SEARCH = "from attnlab.experiments.define.search import Search, choice, log_uniform"


class Estimate(Builder):
    """A builder that counts by a formula (`test_building` has the true counts), and
    builds a system once for all its sizes.
    """

    def __init__(self, file: str, seed: int) -> None:
        super().__init__(file, seed)
        self._tasks: dict[str, Any] = {}

    def _new_task(self, config: ConfigDict) -> Any:
        kind = _kind(config, r"system\.")
        if kind not in self._tasks:
            self._tasks[kind] = super()._new_task(config)
        return self._tasks[kind]

    def count(self, config: ConfigDict, what: str) -> float:
        sizes = config.system
        if what == "flops":
            return 1000.0 * sizes.decoder + 50.0 * sizes.encoder
        shares = 40 * sizes.embedding + 20 * sizes.encoder + 13 * sizes.decoder + 15 * sizes.maxout
        return 500 + shares

    def work(self, config: ConfigDict) -> Work:
        return Work(self.count(config, "flops"), 70.0, 1, ("decoder/idle",))


def _kind(config: ConfigDict, left_out: str = "$") -> str:
    """All settings but those whose names begin so, numbers of the system left out too."""
    settings = configs.to_dict(configs.flat(config)).items()
    return json.dumps(
        [
            (name, re.sub(r"\d+", "N", str(value)) if name.startswith("system.") else value)
            for name, value in settings
            if not re.match(left_out, name)
        ]
    )


estimate = functools.cache(Estimate)
checked: set[str] = set()


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """FLOPs are not counted, which takes longest and is tested in `test_building.py`."""
    monkeypatch.setattr(building, "step_flops", lambda config, task: 1.0)
    monkeypatch.setattr(building, "step_work", lambda config, task: Work(1.0, 0.0))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans with estimated counts; a config is checked once for all sizes of its system. The tests
    share a builder.
    """
    check = building.check

    def check_once(kind: Any, config: ConfigDict) -> None:
        if (name := _kind(config)) not in checked:
            check(kind, config)
            checked.add(name)

    monkeypatch.setattr(building, "check", check_once)
    monkeypatch.setattr(planning, "Builder", estimate)


@pytest.fixture
def inside(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the planning process does is done in this one, which has imported all of it."""
    monkeypatch.setattr(
        in_a_process, "_planned", lambda function, *given: getattr(planning, function)(*given)
    )


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
