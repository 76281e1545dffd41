"""`tasks.json`: of an experiment over several tasks, which folders beside it are their sweeps."""

import json
from pathlib import Path
from typing import TypedDict

from attnlab.errors import UserError
from attnlab.experiments.define import Experiment
from attnlab.records.files import write_atomic
from attnlab.records.json_kinds import SWEEP, FolderName, Natural, read_file


class Tasks(TypedDict):
    """The question of an experiment and its tasks, in order."""

    version: Natural
    question: str
    tasks: list[FolderName]


def read_tasks(directory: Path) -> Tasks | None:
    """Reads `tasks.json` of a folder and returns it as a dict: its version, the question, and the
    list of names of the tasks whose sweeps are there; returns None if there is no such file.

    Raises:
      UserError: the file is damaged.
    """
    remedy = "remove it, and run the same 'sweep' command again"
    return read_file(directory / "tasks.json", Tasks, remedy)


def write_tasks(directory: Path, experiment: Experiment, replace: bool) -> None:
    """Writes `tasks.json`, the question and task names of an experiment, into `directory`, made if
    absent; raises `UserError` if a task of the earlier file is missing, unless `replace`.

    Raises:
      UserError: the experiment lacks a task that was there.
    """
    before = read_tasks(directory)
    gone = [name for name in (before["tasks"] if before else ()) if name not in experiment.tasks]
    if gone and not replace:
        raise UserError(
            f"{directory} has a task {gone[0]!r} too; put it back, or add --change-plan"
        )
    made = {"version": SWEEP, "question": experiment.question, "tasks": [*experiment.tasks]}
    directory.mkdir(parents=True, exist_ok=True)
    write_atomic(directory / "tasks.json", json.dumps(made, indent=1) + "\n")
