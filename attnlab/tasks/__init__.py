"""Tasks: what is learned. A task joins data, a system, a loss and its scores."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from attnlab.errors import UserError, nearest
from attnlab.registry import Table

TASKS = Table(
    "task",
    {
        "translation": "attnlab.tasks.translation:Translation",
        "pronunciation": "attnlab.tasks.pronunciation:Pronunciation",
        "classification": "attnlab.tasks.classification:Classification",
        "language_modelling": "attnlab.tasks.language_modelling:LanguageModelling",
    },
)


def check(config: ConfigDict) -> Any:
    """Check all of a config that needs no data. Returns the class of its task.

    Raises:
      UserError: an unknown task, a checkpoint chosen by a score that is not known while training, or what the task's own check finds.
    """
    kind = TASKS.resolve(config.task)
    if config.checkpoint.by not in kind.evaluated:
        raise UserError(f"config.checkpoint.by={config.checkpoint.by!r}; {nearest(config.checkpoint.by, kind.evaluated)}")
    kind.check(config)
    return kind


def check_scores(task: Any) -> None:
    """Check that a task has, of the data it has read, the score that chooses the checkpoint; `UserError`."""
    by = task.config.checkpoint.by
    if by not in task.measures:
        known = [name for name in task.evaluated if name in task.measures]
        raise UserError(f"config.checkpoint.by={by!r}: this data has no such score; {nearest(by, known)}")
