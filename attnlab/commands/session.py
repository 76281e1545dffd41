"""What the commands that work on a run share: its config, its folder, and jax set up once."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.training.manifest import Manifest
from attnlab.training.run import start_jax
from attnlab.training.sealed import check_test_split, sweep_of

__all__ = ["add_ensemble", "check_folder", "existing_run", "start_jax", "trained_run", "trained_task", "wanted_config"]

CHANGEABLE = ("data", "decoding", "parallel")  # what may differ between training a model and using it


def wanted_config(path: str | None, overrides: Sequence[str]) -> ConfigDict:
    """The config of `--config` with overrides.

    Raises:
      UserError: no `--config`, or anything wrong with it.
    """
    if path is None:
        raise UserError("no --config given; for example --config=configs/translation.py:rnnsearch ('list configs' shows all)")
    return configs.load(path, overrides)


def existing_run(workdir: Path) -> Manifest | None:
    """The manifest of a workdir; None if the folder is absent, empty, or all that it holds is a run killed at its very start.

    Raises:
      UserError: the manifest is damaged, or the folder is none, or it holds something that is not a run.
    """
    check_folder("--workdir", workdir)
    manifest = Manifest.read(workdir)
    if manifest is None and workdir.is_dir():
        strangers = sorted(set(os.listdir(workdir)) - {".lock", "vocabulary", "status.json", ".status.json.tmp", ".manifest.json.tmp"})
        if strangers:
            raise UserError(f"--workdir={workdir} is not empty and holds no run ({strangers[0]} is there); name a new or empty folder")
    return manifest


def check_folder(flag: str, folder: Path) -> None:
    """Raise `UserError` if `folder` neither is one nor can be made, because it or what it would lie in is a file."""
    there = next(one for one in (folder, *folder.absolute().parents) if os.path.lexists(one))
    if not there.is_dir():
        raise UserError(f"{flag}={folder}: {there} is not a folder; name another")


def trained_run(arguments: Any) -> tuple[ConfigDict, Path]:
    """The config of the trained run in `--workdir`: the stored one with overrides of how it is used.

    With `--config` it is that config with all overrides, which must be the stored one apart from how it is used.

    Raises:
      UserError: no such run, or an override that would make it another model.
    """
    if not arguments.workdir:
        raise UserError("no --workdir given; name the folder of a trained run")
    workdir = Path(arguments.workdir)
    check_folder("--workdir", workdir)
    manifest = Manifest.read(workdir)
    if manifest is None:
        raise UserError(f"--workdir={workdir} holds no run; train one there with 'train --config=... --workdir={workdir}'")
    changeable = CHANGEABLE if sweep_of(workdir) is None else CHANGEABLE[1:]  # a trial's test files are no other split's either
    if arguments.config is not None:
        config = wanted_config(arguments.config, arguments.overrides)
        manifest.check_config(config, workdir, ignore=changeable)
        return config, workdir
    for override in arguments.overrides:
        if override.partition(".")[0] not in changeable:
            key = override.partition("=")[0]
            raise UserError(f"config.{key} cannot change after training; these can: {', '.join(part + '.*' for part in changeable)}")
    return configs.prepare(configs.from_dict(manifest.config), arguments.overrides), workdir


def trained_task(arguments: Any, splits: Sequence[str]) -> tuple[Any, Any, int, Path]:
    """Task, parameters and step of the run in `--workdir`, with the data of `splits` read; those of `--ensemble` are joined to it.

    Raises:
      UserError: no such run, the test split of a sweep's trial that is still closed, or runs that do not go together.
    """
    config, workdir = trained_run(arguments)
    others = ensemble_of(arguments, workdir)
    if "test" in splits:
        for folder in (workdir, *others):
            check_test_split(folder)
    start_jax()
    from attnlab.tasks import TASKS
    from attnlab.training.loop import best_params

    task = TASKS.resolve(config.task).load(config, workdir, splits)
    params, step = best_params(config, task, workdir)
    if others:
        from attnlab.tasks.ensemble import together

        named = [(str(workdir), task, params)]
        for folder, stored in others.items():
            other = TASKS.resolve(stored.task).load(stored, folder, ())
            named.append((str(folder), other, best_params(stored, other, folder)[0]))
        task, params = together(named)
    return task, params, step, workdir


def add_ensemble(parser: argparse.ArgumentParser) -> None:
    """`--ensemble`, of the commands for which several runs can be one."""
    parser.add_argument(
        "--ensemble", metavar="FOLDER,...", help="more trained runs of the same vocabulary, of all of which the mean probability counts"
    )


def ensemble_of(arguments: Any, workdir: Path) -> dict[Path, ConfigDict]:
    """The runs of `--ensemble`, beside that of `workdir`, and the config that each was trained with.

    Raises:
      UserError: one of them is no run, or named twice.
    """
    folders = [Path(name.strip()) for name in (getattr(arguments, "ensemble", None) or "").split(",") if name.strip()]
    named = [workdir, *folders]
    found = {}
    for number, folder in enumerate(folders, start=1):
        manifest = Manifest.read(folder) if folder.is_dir() else None
        if manifest is None:
            raise UserError(f"--ensemble: {folder} holds no run; name folders of trained runs, with commas between them")
        if folder.resolve() in {one.resolve() for one in named[:number]}:
            raise UserError(f"--ensemble: {folder} is named twice; a run counts once")
        found[folder] = configs.prepare(configs.from_dict(manifest.config), [])
    return found
