"""The two formats of records, each with one version number in its head.

A *run* is a folder with `manifest.json`, a *sweep* one with `plan.json`; the version that stands
there is that of all files of the folder. A record without one is of version 1, and a record keeps
its version for life: what goes on with it adds nothing to what it did not keep from the start. What version 1 may lack, and
what is made of that, is a table in docs/report.md.
"""

from typing import Any, NotRequired, TypedDict

from attnlab.errors import UserError
from attnlab.records.json_kinds import Natural, fit, parsed

RUN, SWEEP = 2, 2
"""The versions that are written now; all from 1 on are read."""


class _Versioned(TypedDict):
    """What is read of a head before anything else."""

    version: NotRequired[Natural]


def versioned(text: str | bytes, newest: int, where: object) -> dict[str, Any]:
    """Parses the JSON object `text` and returns its fields, with "version" 1 if that is absent;
    raises `UserError`, with `where` in the message, unless the version is from 1 to `newest`, and
    `Damaged` if it is no object.

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
