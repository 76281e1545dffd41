"""Every task has what training and reports ask of one."""

from __future__ import annotations

import pytest

from attnlab.tasks import TASKS
from attnlab.tasks.base import Task
from attnlab.training.protocol import Remembering, Runnable
from tests.training.toy import Line, Trailing

MEMBERS = {name for name in dir(Runnable) if not name.startswith("_")}


@pytest.mark.parametrize("name", TASKS.names())
def test_every_task_can_be_run(name: str) -> None:
    kind = TASKS.resolve(name)
    assert issubclass(kind, Task)
    of_objects = {"config", "data", "system"}
    assert {
        one for one in MEMBERS | {"evaluated", "outputs"} if not hasattr(kind, one)
    } <= of_objects


def test_a_task_that_remembers_is_told_by_its_method() -> None:
    assert isinstance(Trailing(), Remembering) and not isinstance(Line(), Remembering)
