"""The plan of the last dry run, kept for the sweep that follows within the hour, in the user's cache folder:
it is used if the experiment, the code and the files of the data are those of then.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attnlab.experiments.define import Changes, definition, definition_hash, load_experiment
from attnlab.experiments.plan.growth import own_files
from attnlab.experiments.plan.plan import Plan
from attnlab.records import provenance
from attnlab.records.files import cache_folder, timestamp, write_atomic

LIFETIME = 3600.0
"""Seconds for which a draft may be used: what else it depends on, such as packages, has not changed
by then as a rule.
"""
_FILE = "plan-of-a-dry-run"
_PACKAGE = Path(__file__).resolve().parents[2]


def keep(plan: Plan) -> None:
    """Keeps the plan of a new sweep, in place of the one before; where that is not possible, the
    next command plans again.
    """
    if (folder := cache_folder()) is not None:
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomic(folder / _FILE, f"{plan.hash} {_inputs(plan)}\n{plan.to_json()}")


def stored(file: str, changes: Changes) -> Plan | None:
    """Returns the plan for a new sweep of an experiment that the last dry run has made, or None."""
    folder = cache_folder()
    if folder is None or not (path := folder / _FILE).exists():
        return None
    if time.time() - path.stat().st_mtime > LIFETIME:
        return None
    identity, inputs, text = path.read_text(encoding="utf-8").split(maxsplit=2)
    if identity != definition_hash(definition(load_experiment(file, changes), file)):
        return None
    plan = Plan.from_json(text, str(path))
    plan = dataclasses.replace(plan, file=file, created=timestamp(), unmatched=changes.unmatched)
    if inputs != _inputs(plan):
        return None
    return dataclasses.replace(plan, own_code={**own_files(plan).record(), "accepted": []})


def _inputs(plan: Plan) -> str:
    """Returns a digest of the code and the files that a plan was made of."""
    files = set(_PACKAGE.rglob("*.py"))
    for candidate in plan.candidates:
        for path in _paths(dict(candidate.config)["data"]):
            files |= {path, *(path.glob("*") if path.is_dir() else ())}
    stats = [(str(path), path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(files)]
    code = [provenance.of(candidate.config).digests for candidate in plan.candidates]
    code += [own_files(plan).digests]
    return hashlib.sha256(json.dumps([stats, code]).encode()).hexdigest()


def _paths(setting: Any) -> Iterator[Path]:
    """Yields the files and folders that settings name, at any depth."""
    if isinstance(setting, Mapping):
        setting = list(setting.values())
    if isinstance(setting, list | tuple):
        for part in setting:
            yield from _paths(part)
    elif isinstance(setting, str) and setting:
        with contextlib.suppress(OSError, ValueError):
            if (path := Path(setting).expanduser()).exists():
                yield path
