"""`diff RUN RUN`: the settings in which two runs differ, then their results; reads records only."""

import argparse
import contextlib
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnlab import config as configs
from attnlab.commands.session import manifest_of
from attnlab.errors import UserError
from attnlab.progress import table
from attnlab.records.json_kinds import read_file
from attnlab.records.manifest import Manifest
from attnlab.records.measures import Scores

REMEDY = "delete it and run the 'train' command of this folder again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `diff` to its parser: the folders of two runs."""
    parser.add_argument("first", metavar="RUN", type=Path, help="the folder of a run or of a trial")
    parser.add_argument("second", metavar="RUN2", type=Path, help="another")


def run(arguments: argparse.Namespace) -> int:
    """Prints a table of the settings that differ between two runs, the differences of their
    packages, devices, data and code, and a table of the test scores of both; returns 0.

    Returns:
      0, whatever differs.

    Raises:
      UserError: a folder holds no run, a damaged record, or a folder is named twice.
    """
    folders = [arguments.first.resolve(), arguments.second.resolve()]
    if folders[0] == folders[1]:
        raise UserError(f"{arguments.first} is named twice; name two runs")
    manifests = [manifest_of(folder) for folder in (arguments.first, arguments.second)]
    results = [_results(folder) for folder in folders]
    common = os.path.commonpath(folders)
    columns = [os.path.relpath(folder, common) for folder in folders]
    settings = [row for row in _paired(*map(_settings, manifests)) if row[1] != row[2]]
    if settings:
        table("settings that differ", ("setting", *columns), settings, numbers=())
    else:
        print("the settings are the same")
    for line in manifests[0].environment_changes(manifests[1]):
        print(f"made otherwise: {line.replace(': saved ', ' ').replace(', wanted ', ', then ')}")
    rows = [(*row, row[2] - row[1] if None not in row else None) for row in _paired(*results)]
    if rows:
        table("\nresults", ("measure", *columns, "difference"), rows)
    for folder, scores in zip(columns, results, strict=True):
        if not scores:
            print(f"{folder} has no results yet")
    return 0


def _settings(manifest: Manifest) -> dict[str, str]:
    """Returns the settings of a run as text, by full names; those newer than it with the values
    that it meant, unless a component that it names is gone.
    """
    config: Any = manifest.config
    with contextlib.suppress(UserError):
        config = configs.prepare(configs.from_dict(manifest.config), ())
    return {name: json.dumps(value) for name, value in configs.flat(config).items()}


def _results(folder: Path) -> dict[str, float]:
    """Returns the finite scores of the run in `folder` on its test split, by the name of the
    measure; {} before it has any.
    """
    results: Mapping[str, Any] = read_file(folder / "results.json", Scores, REMEDY) or {}
    return {
        name: value
        for name, value in results.items()
        if type(value) in (int, float) and math.isfinite(value)
    }


def _paired(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Returns (name, first value, second value) for all names, None where one is absent."""
    return [(name, first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])]
