"""What guards the scores of a test split: the seal on that of a sweep's trials, of which only chosen
ones may be scored on it, and only once the choice is frozen; and `digests.json`, which says what
the records of a run were when it was scored.

A trial lies in `SWEEP/trials/CANDIDATE/seedN`; `SWEEP/choice.json` is the frozen choice (see
`attnlab.experiments`).

`digests.json` has the SHA-256 of these records, so that a report can say which of them are no
longer what the run left. It is written before `results.json`, the last record of a run. It guards
against mixed-up copies and edits by hand, not against somebody who edits this file too.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict

from attnlab.errors import UserError
from attnlab.records.files import write_atomic
from attnlab.records.items import FILE as ITEMS
from attnlab.records.json_kinds import FolderName, read_file

CHOICE = "choice.json"


class _Chosen(TypedDict):
    candidate: FolderName | None


class _Choice(TypedDict):
    """What is read of it here."""

    chosen: Mapping[str, _Chosen]


class _Parent(TypedDict):
    trial: NotRequired[str | None]


class _Child(TypedDict):
    """What is read of a manifest here."""

    parent: NotRequired[_Parent | None]


def trial_behind(workdir: str | Path) -> str | None:
    """Returns the trial that a run goes on from, itself or through others; None without one."""
    child = read_file(Path(workdir) / "manifest.json", _Child, "put back a good copy") or {}
    return (child.get("parent") or {}).get("trial")


def sweep_of(workdir: str | Path) -> Path | None:
    """Returns the folder of the sweep (`plan.json` is in it) of which `workdir` is a trial, or None
    if it is no trial.
    """
    for path in _paths(workdir):
        if (
            len(path.parents) > 2
            and path.parents[1].name == "trials"
            and (path.parents[2] / "plan.json").exists()
        ):
            return path.parents[2]
    return None


def _paths(workdir: str | Path) -> tuple[Path, Path]:
    """A folder as it is named, and as it is: `trials/` may be a link to another disk."""
    return Path(workdir).absolute(), Path(os.path.realpath(workdir))


def check_test_split(workdir: str | Path) -> None:
    """Raises `UserError`, since its test split must not be read yet, if `workdir` is a trial of a
    sweep, or a run that goes on from a trial, and the sweep has not frozen its choice or has not
    chosen that trial.
    """
    if (trial := trial_behind(workdir)) is not None:
        check_test_split(trial)
    directory = sweep_of(workdir)
    if directory is None:
        return
    remedy = "put back a good copy, it cannot be made twice"
    choice = read_file(directory / CHOICE, _Choice, remedy)
    if choice is None:
        raise UserError(
            f"{workdir} is a trial of the sweep {directory}, whose choice is not frozen yet: its"
            f" test split stays closed until all trials have settled ('sweep --dir={directory}'"
            " goes on); --split=valid is open"
        )
    chosen = {variant["candidate"] for variant in choice["chosen"].values()}
    if not {path.parent.name for path in _paths(workdir)} & chosen:
        raise UserError(
            f"{workdir} is a trial that was not chosen in the sweep {directory}: its test split"
            " stays closed; --split=valid is open"
        )


def check_no_trial(workdir: str | Path) -> None:
    """Raises `UserError` if `workdir` is a trial of a sweep, since only the sweep may train it."""
    directory = sweep_of(workdir)
    if directory is not None:
        raise UserError(
            f"--workdir={workdir} is a trial of the sweep {directory}: 'sweep' trains it; name"
            " another folder"
        )


FILE, RESULTS = "digests.json", "results.json"
_KEPT = (ITEMS, "metrics.jsonl", "valid.json")


def write_results(workdir: Path, results: str, texts: Mapping[str, str] | None = None) -> None:
    """Writes into a run's folder the files `texts` (text by file name), then `digests.json` with
    the SHA-256 of each of the run's records that exists, by file name, and last `results.json` with
    the text `results`.

    Args:
      workdir: of the run; its other records are there.
      results: the text of `results.json`.
      texts: those of the further files, by name.
    """
    texts = texts or {}
    for name, text in texts.items():
        write_atomic(workdir / name, text)
    digests = {name: _digest(workdir / name) for name in (*_KEPT, *texts)}
    digests[RESULTS] = hashlib.sha256(results.encode()).hexdigest()
    present = {name: digest for name, digest in digests.items() if digest}
    write_atomic(workdir / FILE, json.dumps(present, indent=1) + "\n")
    write_atomic(workdir / RESULTS, results)


def altered_records(workdir: Path) -> list[str] | None:
    """Returns the file names of a run's records whose SHA-256 differs from that in its
    `digests.json`, lost files included, or None if that file does not exist (a run not scored, or
    of an older version).

    Raises:
      UserError: `digests.json` is damaged.
    """
    remedy = "put back a good copy, it says what the run left"
    recorded = read_file(workdir / FILE, dict[str, str], remedy)
    if recorded is None:
        return None
    return [name for name, digest in recorded.items() if _digest(workdir / name) != digest]


def _digest(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes in hex, "" if there is no such file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, IsADirectoryError):
        return ""
