"""Several trained translators as one: a task as the first of them, with an ensemble for a
system.
"""

from collections.abc import Sequence
from typing import Any

from attnlab.data.vocabulary import Vocabulary
from attnlab.errors import UserError
from attnlab.systems.ensemble import ensemble
from attnlab.tasks.base import Task
from attnlab.tasks.pairs import PairTask
from attnlab.tasks.protocol import Params


def together(
    runs: Sequence[tuple[str, Task[Any, Any, Any], Params]],
) -> tuple[PairTask[Any], Params]:
    """Joins trained runs of a task that translates, triples (name, task, parameters), into one task
    whose system averages all members, and returns it with its parameters; raises `UserError` if
    one does not translate, or tasks or vocabularies differ.

    Data, decoding, scores and everything but the system are those of the first task. The parameters
    are a mapping of "members_0", "members_1", ... to those of the tasks.

    Args:
      runs: of every member the name of its run, its task and its parameters.

    Raises:
      UserError: a task that does not translate, that is another than the first, or that has other
        vocabularies.
    """
    first, task, _ = runs[0]
    members: list[PairTask[Any]] = []
    for name, member, _ in runs:
        if not isinstance(member, PairTask):
            raise UserError(
                f"{name}: no ensembles of the task {member.config.task!r}; they are of runs that"
                " translate"
            )
        if member.config.task != task.config.task:
            raise UserError(
                f"{name} is a run of task={member.config.task}, {first} of task={task.config.task};"
                " name runs of one task"
            )
        ours = (members or [member])[0].vocabularies
        if not all(_encode_alike(*pair) for pair in zip(member.vocabularies, ours, strict=True)):
            raise UserError(
                f"{name} has another vocabulary than {first}; train the members of an ensemble on"
                " the same data"
            )
        members.append(member)
    # no copy: what the first task has compiled holds its own system
    joined = type(members[0])(task.config, members[0].data)
    joined.system = ensemble([member.system for member in members])
    return joined, {f"members_{number}": params for number, (_, _, params) in enumerate(runs)}


def _encode_alike(first: Vocabulary, second: Vocabulary) -> bool:
    """Whether both turn a text into the same ids."""
    alike = all(first.settings[name] == second.settings[name] for name in ("kind", "lowercase"))
    return alike and first.tokens(range(first.size)) == second.tokens(range(second.size))
