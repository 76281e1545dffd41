"""The two formats of records, each with one version number in its head, and what is made of an older
record.

A *run* is a folder with `manifest.json`, a *sweep* one with `plan.json`; the version that stands
there is that of all files of the folder. A record without one is of version 1, and a record keeps
its version for life: what goes on with it adds nothing to what it did not keep from the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

from attnlab.errors import UserError
from attnlab.records.json_kinds import Natural, fit, parsed

RUN, SWEEP = 2, 2
"""The versions that are written now; all from 1 on are read."""

OLDER: Mapping[str, Mapping[str, str]] = {
    "run": {
        "attempts.jsonl": "taken as events.jsonl; renamed by the next event",
        "no hashes of your own code": "taken; a note says that nobody knows whether it is the same",
        "no hashes of the vocabulary": "taken; by the settings of the vocabulary in the report",
        "no hash of the package": "taken; the code is told by its commit",
        "no number of cores": "taken; another number is no change",
        "a hash of the whole config": "taken beside that without newer settings of default value",
        "checkpoints that do not know the metrics": "taken; metrics are not compared with them",
        "measures of scores": "translated: bounds and counts unknown, and what a score depends on by its name",
        "no items.npz": "taken; nothing is resampled",
        "no digests.json": "taken; nothing tells whether files were changed",
        "no look.json": "translated: the test data is told by the settings of task and data",
        "no examples.json": "refused: the report shows no answers",
    },
    "sweep": {
        "no looks.jsonl": "translated: the test split was first read when the choice was made",
        "no number of looks": "translated: one was planned",
        "no number of cores": "translated: that of its machine is taken while no trial has begun",
        "no counts beside FLOPs": "taken; columns and warnings of them are left out",
        "no hashes of code": "taken; ids have none",
        "a choice without scores": "taken; nothing is said of settings that were lost",
        "contrasts without `on`": "translated: they are on the measure",
    },
}
"""What records of version 1 may lack or call otherwise, and what is made of it. The table also stands in
docs/report.md.
"""


class _Versioned(TypedDict):
    """What is read of a head before anything else."""

    version: NotRequired[Natural]


def versioned(text: str | bytes, newest: int, where: object) -> dict[str, Any]:
    """The fields of the JSON text of a head, the version among them; `where` it stands is for
    messages.

    Raises:
      Damaged: it is no object.
      UserError: the version is none that is read here.
    """
    fields: dict[str, Any] = {"version": 1, **fit(parsed(text), _Versioned)}
    if not 1 <= fields["version"] <= newest:
        raise UserError(
            f"{where} is of version {fields['version']}, and this attnlab reads 1 to {newest}: use"
            " the attnlab that wrote it, or another folder"
        )
    return fields
