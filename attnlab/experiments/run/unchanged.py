"""Checks before a trial is trained or scored: the user's code is that of the plan, and the data is
that of the other trials.

Both may be edited while a sweep runs, and any of its processes may notice it first. Then all stop,
no trial counts as failed, and the launcher ends with one line. The same command continues once the
change is undone or accepted.
"""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from attnlab.errors import UserError
from attnlab.experiments.plan import Trial
from attnlab.records import provenance
from attnlab.records.manifest import Manifest
from attnlab.records.provenance import Changed, Code

CHANGED = os.EX_CONFIG
"""The exit code of a process that has seen such a change."""


def check_code(trial: Trial) -> Code:
    """Returns the user's own code that a trial uses, as it is now; raises `Changed` if it is not
    the code of the plan; called before that code is imported, and after.

    The code of the plan counts, even if the trial began with other code.

    Raises:
      Changed: it is not that of the plan.
    """
    planned, code = trial.candidate.code, provenance.code(trial.candidate.config)
    before = code.digests if planned is None else planned
    names = {**before, **code.digests}
    if other := [name for name in names if before.get(name) != code.digests.get(name)]:
        files = ", ".join(
            code.modules[name].file if name in code.modules else f"{name} (gone)" for name in other
        )
        raise Changed(
            f"{trial.candidate.id} was planned with other code: {files}; put that back, or run the"
            f" same command with {provenance.FLAG}"
        )
    return dataclasses.replace(code, accept=planned is not None)


def check_data(trial: Trial, directory: Path, fingerprints: Mapping[str, str]) -> None:
    """Raises `Changed` unless the data that a trial has read (`fingerprints`: split to hash) is the
    same as that of the sweep's other trials with the same task and data settings.

    Args:
      trial: that has read it; the seed is no part of the data.
      directory: the sweep's folder.
      fingerprints: of the data, by split.

    Raises:
      Changed: a split is not.
    """
    for path in sorted((directory / "trials").glob("*/seed*/manifest.json")):
        manifest = None
        with contextlib.suppress(UserError):  # a damaged one is told when that trial is next used
            manifest = Manifest.read(path.parent)
        if manifest is None or any(
            manifest.config.get(key) != trial.config.get(key) for key in ("task", "data")
        ):
            continue
        manifest.check_data(fingerprints, path.parent)
        if {*fingerprints} <= {*manifest.read_data(path.parent)}:
            return
