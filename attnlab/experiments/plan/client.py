"""The launcher's side of planning: checks whether the plan is still valid, else starts the process
that makes it (`process.py`); imports no jax.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlab.errors import TRACEBACK, UserError
from attnlab.experiments.define import (
    AS_IT_IS,
    Changes,
    definition,
    definition_hash,
    load_experiment,
)
from attnlab.experiments.plan import matching
from attnlab.experiments.plan.candidate import Candidate
from attnlab.experiments.plan.growth import FLAG, check_code, check_growth, planned_before
from attnlab.experiments.plan.plan import Plan
from attnlab.records import provenance

_PACKAGE = Path(__file__).resolve().parents[3]


def ensure(file: str, directory: str | Path, changes: Changes = AS_IT_IS) -> Plan:
    """The plan of an experiment in the sweep folder: the existing one, a new one, or the existing
    one extended to the present file.

    An experiment that has not changed is not planned again.

    Args:
      file: "experiments/quickstart.py", with an argument "experiments/bottleneck.py:my/folder".
      directory: the sweep folder; made if absent.
      changes: of the command line; part of the experiment.

    Raises:
      UserError: a mistake in the file, or the folder holds trials that no longer fit (see
        `growth`).
    """
    existing = _unchanged(file, directory, changes)
    if existing is not None:
        return existing
    _run([file, str(directory), *_flags(changes)])
    return Plan.of_sweep(directory)


def draft(file: str, directory: str | Path, changes: Changes = AS_IT_IS) -> Plan:
    """The plan that `ensure` would return; nothing is written."""
    drafted = _unchanged(file, directory, changes)
    return drafted or Plan.from_json(
        _run([file, str(directory), "--draft", *_flags(changes)]), "the draft of a plan"
    )


def grow(directory: str | Path, points: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Candidate]:
    """Plan further candidates and add them to the plan; safe with several processes at once.

    Args:
      directory: a sweep folder with a plan.
      points: variant and tuned settings of each.

    Returns:
      The candidates in the order of `points`; existing candidates are returned too.

    Raises:
      UserError: there is no plan, or a setting does not fit.
    """
    points = list(points)
    plan = Plan.of_sweep(directory)
    wanted = [plan.want(variant, tuned).id for variant, tuned in points]
    if None in [plan.made_of(identity) for identity in wanted]:
        _run([str(directory), "--grow"], json.dumps(points))
        plan = Plan.of_sweep(directory)
    return [candidate for candidate in map(plan.made_of, wanted) if candidate is not None]


def _flags(changes: Changes) -> list[str]:
    """Changes as flags of the planning process."""
    accept = [provenance.FLAG] if changes.accept else []
    replace = [FLAG] if changes.replace else []
    return [
        *(f"--set={change}" for change in changes.base),
        *(f"--seed={seed}" for seed in changes.seeds),
        *accept,
        *replace,
        *([matching.FLAG] if changes.unmatched else []),
    ]


def _unchanged(file: str, directory: str | Path, changes: Changes) -> Plan | None:
    """The existing plan if it is of this experiment; None if one must be made."""
    stated = definition(load_experiment(file, changes), file)
    old = Plan.read(directory)
    if old is None:
        return None
    defined = planned_before(stated, old)
    other = check_code(old, Path(directory), changes.accept)
    unknown = sorted(
        {
            name
            for candidate in old.candidates
            if candidate.code is None
            for name in provenance.of(candidate.config).modules
        }
    )
    if unknown:
        what = f"so nobody knows whether {', '.join(unknown)} is the same"
        print(
            f"note: {directory} does not say what code it was planned with, {what}", file=sys.stderr
        )
    if old.hash == definition_hash(defined):
        return None if other or changes.unmatched > old.unmatched else old
    check_growth(old, defined, Path(directory))
    return None


def _run(arguments: Sequence[str], given: str = "") -> str:
    """The output of the planning process; its error line becomes a `UserError`."""
    command = [sys.executable, "-P", "-m", "attnlab.experiments.plan.process", *arguments]
    path = os.pathsep.join(
        filter(None, (str(_PACKAGE), os.environ.get("PYTHONPATH")))
    )  # attnlab may be run without being installed
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "JAX_PLATFORMS": "cpu",
    }  # shapes and counts only: accelerators are for the trials
    options: dict[str, Any] = {
        "capture_output": True,
        "text": True,
        "process_group": 0,
    }  # the launcher passes Ctrl-C on
    done = subprocess.run(command, input=given, env=environment, check=False, **options)
    if done.returncode:
        *before, line = done.stderr.strip().splitlines() or ["it said nothing"]
        if done.returncode != 2 or os.environ.get(TRACEBACK):
            print(*before, sep="\n", file=sys.stderr)
        if done.returncode != 2:
            line = f"planning failed (exit code {done.returncode}): {line}"
        raise UserError(line)
    for line in done.stderr.splitlines():
        if line.startswith("note: "):
            print(line, file=sys.stderr)
    return done.stdout
