"""`diff RUN RUN`: the settings in which two runs differ, then their results; reads records only."""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict, TypeGuard

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.progress import table
from attnlab.records.files import check_folder
from attnlab.records.json_kinds import read_file
from attnlab.records.manifest import Manifest, plain

SHOWN = 5  # lines on packages, devices, data and code


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `diff` to its parser: the folders of two runs."""
    parser.add_argument("first", metavar="RUN", type=Path, help="the folder of a run or of a trial")
    parser.add_argument("second", metavar="RUN2", type=Path, help="another")


def run(arguments: argparse.Namespace) -> int:
    """Prints the settings in which two runs differ, what else they were made from that differs, and
    the results of both.

    Returns:
      0, whatever differs.

    Raises:
      UserError: a folder holds no run, a damaged record, or a folder is named twice.
    """
    folders = [arguments.first, arguments.second]
    if folders[0].resolve() == folders[1].resolve():
        raise UserError(f"{folders[0]} is named twice; name two runs")
    manifests = [_manifest(folder) for folder in folders]
    results = [_results(folder) for folder in folders]
    common = os.path.commonpath([folder.resolve() for folder in folders])
    columns = [os.path.relpath(folder.resolve(), common) for folder in folders]
    settings = list(_different(*map(_settings, manifests)))
    if settings:
        table("settings that differ", ("setting", *columns), settings, numbers=())
    else:
        print("the settings are the same")
    others = manifests[0].environment_changes(manifests[1])
    for line in others[:SHOWN]:
        print(f"made otherwise: {line.replace(': saved ', ' ').replace(', wanted ', ', then ')}")
    if len(others) > SHOWN:
        print(f"made otherwise: {len(others) - SHOWN} more")
    for folder, scores in zip(folders, results, strict=True):
        if not scores:
            print(f"{folder} has no results yet")
    if any(results):
        table("\nresults", ("measure", *columns, "difference"), list(_scores(*results)))
    return 0


def _manifest(folder: Path) -> Manifest:
    """Returns the manifest of a run; raises `UserError` where there is none."""
    check_folder("RUN", folder)
    manifest = Manifest.read(folder)
    if manifest is None:
        raise UserError(f"{folder} holds no run (no manifest.json in it); name the folder of a run")
    return manifest


def _settings(manifest: Manifest) -> dict[str, Any]:
    """Returns the settings of a run by full names; those newer than it with the values that it
    meant, unless a component that it names is gone.
    """
    try:
        config = configs.to_dict(configs.prepare(configs.from_dict(manifest.config), ()))
    except UserError:
        config = manifest.config
    return configs.flat(plain(config))


def _different(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Yields (name, first value, second value) of the settings that differ, "-" where one is absent."""
    for name in dict.fromkeys([*first, *second]):
        values = ["-" if name not in side else json.dumps(side[name]) for side in (first, second)]
        if values[0] != values[1]:
            yield name, values[0], values[1]


class _Scores(TypedDict):
    """An object with any keys."""


def _results(folder: Path) -> dict[str, float]:
    """Returns the scores of a run on its test split; {} before it has any."""
    remedy = "delete it and run the 'train' command of this folder again"
    results = read_file(folder / "results.json", _Scores, remedy) or {}
    return {name: value for name, value in results.items() if _is_number(value)}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and type(value) is not bool and math.isfinite(value)


def _scores(
    first: Mapping[str, float], second: Mapping[str, float]
) -> Iterator[tuple[str, float | None, float | None, float | None]]:
    """Yields (measure, first, second, second minus first) of all measures."""
    for name in dict.fromkeys([*first, *second]):
        values = first.get(name), second.get(name)
        both = values[0] is not None and values[1] is not None
        yield name, *values, second[name] - first[name] if both else None
