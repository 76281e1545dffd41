"""`looks.jsonl` in a sweep's folder: every frozen choice and every reading of the test split, with
the plan and code at that time.

A choice is recorded before it is frozen, a reading before the split is opened, so that a killed
process counts as a look. Records are only appended. From them the report tells what was added after
test scores were known.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from attnlab.experiments.plan import Plan, locked
from attnlab.experiments.run.slots import usable_cores, usable_gpus
from attnlab.records.files import AppendOnly, drop_torn_line, timestamp
from attnlab.records.json_kinds import Natural
from attnlab.records.manifest import code_revision
from attnlab.records.stream import read_records

FILE = "looks.jsonl"


class _Event(TypedDict):
    """What both events have: `time` is UTC in ISO 8601, `plan` the plan's hash, `seeds` all of its
    seeds, `code` the revision as in manifests.
    """

    time: str
    plan: str
    seeds: tuple[Natural, ...]
    code: Mapping[str, Any] | None


class Frozen(_Event):
    """A choice: `chosen` is variant to candidate, of those that are chosen now."""

    event: Literal["choice"]
    chosen: Mapping[str, str | None]


class Tested(_Event):
    """A reading of the test split for a candidate: `scored` are the seeds that had no test scores,
    `cores` how many there were, on CPUs.
    """

    event: Literal["test"]
    candidate: str
    scored: tuple[Natural, ...]
    cores: NotRequired[Natural]


Look = Frozen | Tested


def note_choice(directory: Path, plan: Plan, chosen: Mapping[str, str | None]) -> None:
    """Records in `looks.jsonl` that these candidates (by variant) are about to be frozen."""
    _append(directory, plan, {"event": "choice", "chosen": dict(chosen)})


def note_test(directory: Path, plan: Plan, candidate: str, scored: Sequence[int]) -> None:
    """Records in `looks.jsonl` that the test split is about to be read to score a candidate (its
    id) with the seeds `scored`, and on CPUs the number of cores.
    """
    cores = {} if usable_gpus() else {"cores": len(usable_cores())}
    look = {"event": "test", "candidate": candidate, "scored": list(scored), **cores}
    _append(directory, plan, look)


def looked(directory: Path) -> tuple[Mapping[str, Any], ...]:
    """Returns the records in `looks.jsonl` of a sweep, each a `Look`, in order.

    Raises:
      UserError: the file is damaged.
    """
    return tuple(read_records(directory / FILE, Look))


def _append(directory: Path, plan: Plan, entry: Mapping[str, Any]) -> None:
    """Appends an event (`entry`) with the time, the plan's hash and seeds, and the code revision,
    as a line of JSON to `looks.jsonl` in the sweep's folder, and waits until it is on disk.
    """
    context = {"time": timestamp(), "plan": plan.hash, "seeds": plan.seeds, "code": code_revision()}
    with locked(directory), closing(AppendOnly(directory / FILE)) as file:
        drop_torn_line(directory / FILE)
        file.append((json.dumps({**entry, **context}, ensure_ascii=False) + "\n").encode())
        file.sync()
