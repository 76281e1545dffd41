"""One experiment over several tasks or data sets: the same variants and seeds on each, as a sweep
of its own.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from attnlab.errors import UserError, nearest
from attnlab.experiments.define.axes import flattened, layered
from attnlab.experiments.define.experiment import Experiment

OF_A_TASK = ("config", "base", "tune", "select", "measure", "budget", "claim", "search")
"""The fields of an experiment that a task may replace; its `base` is laid over that of all tasks."""


def on_task(experiment: Experiment, name: str) -> Experiment:
    """Returns a copy of the experiment on its task `name` alone, whose fields replace the
    experiment's, with `base` laid over its base and the name added to its question; returns it
    unchanged for ""; raises `UserError` for an unknown or invalid task.

    Raises:
      UserError: it has one task or no such task, or the task sets what no task may, or nothing.
    """
    if not name:
        return experiment
    if len(experiment.tasks) < 2 or name not in experiment.tasks:
        raise UserError(f"two tasks or more are needed; {nearest(name, experiment.tasks)}")
    if not re.fullmatch(r"\w[\w.+ -]*", name):
        raise UserError("cannot name a folder; letters, digits and '_-.+' can")
    fields: Any = experiment.tasks[name]
    if not isinstance(fields, Mapping) or list(experiment.tasks.values()).count(fields) > 1:
        raise UserError(f"is {fields!r}; fields that no other task has are needed, {{'base': ...}}")
    if unknown := [field for field in fields if field not in OF_A_TASK]:
        raise UserError(f"sets {unknown[0]!r}; {nearest(str(unknown[0]), OF_A_TASK)}")
    bases = (flattened(base, "base") for base in (experiment.base, fields.get("base", {})))
    changed = {**fields, "base": layered(*bases), "tasks": {}}
    return dataclasses.replace(experiment, **changed, question=f"{experiment.question} ({name})")
