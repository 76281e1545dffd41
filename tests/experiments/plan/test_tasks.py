"""`tasks.json` names the folders of the tasks' sweeps; none is left out in silence."""

import dataclasses
from pathlib import Path

import pytest

from attnlab.errors import UserError
from attnlab.experiments.plan.tasks import read_tasks, write_tasks
from tests.experiments.plans import EXPERIMENT


def test_tasks_are_kept_in_order_and_none_is_lost_in_silence(tmp_path: Path) -> None:
    assert read_tasks(tmp_path) is None
    both = dataclasses.replace(EXPERIMENT, tasks={"b": {}, "a": {}})
    write_tasks(tmp_path / "new", both, replace=False)
    stated = read_tasks(tmp_path / "new")
    assert stated is not None and stated["tasks"] == ["b", "a"]
    other = dataclasses.replace(EXPERIMENT, tasks={"a": {}, "c": {}})
    with pytest.raises(UserError, match="has a task 'b' too; put it back"):
        write_tasks(tmp_path / "new", other, replace=False)
    assert read_tasks(tmp_path / "new") == stated
    write_tasks(tmp_path / "new", other, replace=True)
    assert read_tasks(tmp_path / "new") == {**stated, "tasks": ["a", "c"]}
