"""Several trained translators as one: the task of the first of them, with an ensemble for a system."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from attnlab.systems.ensemble import ensemble
from attnlab.tasks.translation import Translation


class Together(Translation):
    """Translation by an ensemble: data, decoding and everything but the system are those of the first task.

    Its parameters are a mapping of "members_0", "members_1", ... to those of the tasks.
    """

    def __init__(self, tasks: Sequence[Translation]) -> None:
        super().__init__(tasks[0].config, tasks[0].data)
        self.system = ensemble([one.system for one in tasks])


def together(named: Sequence[tuple[str, Any, Any]]) -> tuple[Together, Any]:
    """One task of several, and its parameters.

    Args:
      named: of every member the name of its run, its task and its parameters.

    Raises:
      UserError: a task that does not translate, or that has other vocabularies than the first.
    """
    first, task, _ = named[0]
    for name, one, _ in named:
        if not isinstance(one, Translation):
            raise UserError(f"{name}: no ensembles of the task {one.config.task!r}; they are of runs that translate")
        if any(not _same(own, of_first) for own, of_first in zip(one.vocabularies, task.vocabularies, strict=True)):
            raise UserError(f"{name} has another vocabulary than {first}; train the members of an ensemble on the same data")
    return Together([one for _, one, _ in named]), {f"members_{number}": params for number, (_, _, params) in enumerate(named)}


def _same(one: Vocabulary, other: Vocabulary) -> bool:
    """Whether both turn a text into the same ids."""
    alike = all(one.settings[name] == other.settings[name] for name in ("kind", "lowercase"))
    return alike and one.tokens(range(one.size)) == other.tokens(range(other.size))
