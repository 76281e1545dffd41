"""What the commands that work on a run share: its config, its folder, and jax set up once."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab import provenance
from attnlab.errors import UserError
from attnlab.training.manifest import Manifest, plain
from attnlab.training.run import start_jax
from attnlab.training.sealed import check_test_split, sweep_of

__all__ = [
    "add_acceptance",
    "add_ensemble",
    "changed_code",
    "check_folder",
    "check_unchanged",
    "existing_run",
    "start_jax",
    "tell",
    "trained_run",
    "trained_task",
    "wanted_config",
]

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
        ours = {".lock", "vocabulary", provenance.FOLDER, "status.json", ".status.json.tmp", ".manifest.json.tmp"}
        strangers = sorted(set(os.listdir(workdir)) - ours)
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
      UserError: no such run, an override that would make it another model, or a vocabulary or code that is not what it was made from.
    """
    if not arguments.workdir:
        raise UserError("no --workdir given; name the folder of a trained run")
    workdir = Path(arguments.workdir)
    check_folder("--workdir", workdir)
    manifest = Manifest.read(workdir)
    if manifest is None:
        raise UserError(f"--workdir={workdir} holds no run; train one there with 'train --config=... --workdir={workdir}'")
    check_unchanged(manifest, workdir, arguments)  # before anything of the user's is imported
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
      UserError: no such run, the test split of a sweep's trial that is still closed, data that is not what the run has read (unless
        overrides name other data), or runs that do not go together.
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
    _check_data(config, task, workdir)
    for folder in (workdir, *others):
        tell(folder, arguments)
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
      UserError: one of them is no run, or named twice, or its vocabulary or code is not what it was made from.
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
        check_unchanged(manifest, folder, arguments)
        found[folder] = configs.prepare(configs.from_dict(manifest.config), [])
    return found


def add_acceptance(parser: argparse.ArgumentParser) -> None:
    """`--accept-changed-code`, of all commands that use what a run holds."""
    parser.add_argument(
        provenance.FLAG,
        action="store_true",
        help="go on although code of yours, which the config names, is not what it was; what is made with it says so",
    )


def check_unchanged(manifest: Manifest, workdir: Path, arguments: Any) -> None:
    """Raise `UserError` if a run's vocabulary is another, or code of the user's that it needs, and that is not accepted."""
    manifest.check_vocabulary(workdir)
    provenance.check(manifest.own_code, own_code(manifest, arguments), workdir)


def own_code(manifest: Manifest, arguments: Any) -> provenance.Code:
    """The user's code that a run needs, as it is now; that of its data source only if no other takes its place."""
    other_data = any(one.partition("=")[0] in ("data", "data.name") for one in getattr(arguments, "overrides", ()))
    needed = {key: node for key, node in manifest.config.items() if not (key == "data" and other_data)}
    return provenance.of(needed, accept=getattr(arguments, "accept_changed_code", False))


def changed_code(arguments: Any) -> dict[str, dict[str, str]]:
    """The changes of code that are accepted for the run in `--workdir` and those of `--ensemble`, to stand beside numbers; {} for none."""
    found: dict[str, dict[str, str]] = {}
    for folder in (Path(arguments.workdir), *ensemble_of(arguments, Path(arguments.workdir))):
        manifest = Manifest.read(folder)
        if manifest is not None:
            found |= provenance.summary(provenance.changes(manifest.own_code, own_code(manifest, arguments)))
    return found


def tell(folder: Path, arguments: Any) -> None:
    """Note on stderr what a person should know before a run is used with the user's code as it is now."""
    manifest = Manifest.read(folder)
    lines = provenance.notes(manifest.own_code, own_code(manifest, arguments), folder) if manifest is not None else []
    for line in lines:
        print(f"note: {line}", file=sys.stderr)


def _check_data(config: ConfigDict, task: Any, workdir: Path) -> None:
    """What is read of the run's own data must be what it has read; data of another config is the user's choice."""
    manifest = Manifest.read(workdir)
    if manifest is not None and plain(config.data) == manifest.config["data"]:
        manifest.check_data(dict(task.data.fingerprints), workdir)
