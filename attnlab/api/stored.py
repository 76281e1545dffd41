"""A trained run as its folder holds it: its config, what of that may be changed, and the runs that join it; imports no jax."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.errors import UserError
from attnlab.training.manifest import Manifest
from attnlab.training.sealed import check_test_split, sweep_of

CHANGEABLE = ("data", "decoding", "parallel")  # what may differ between training a model and using it


@dataclasses.dataclass(frozen=True)
class Stored:
    """A trained run that was found, nothing of it read but the config.

    Attributes:
      config: the one it was trained with, with overrides of how it is used.
      workdir: its folder.
      members: the folders of more runs, which count with it as one, and the config of each.
    """

    config: ConfigDict
    workdir: Path
    members: Mapping[Path, ConfigDict]

    @classmethod
    def find(cls, workdir: Path, overrides: Sequence[str] = (), config: str | None = None, ensemble: Sequence[Path] = ()) -> Stored:
        """The trained run in a folder.

        Args:
          workdir: the folder.
          overrides: "decoding.beam=8" each; of how the run is used.
          config: a config file with its argument; with all overrides it must say what the run was trained with, apart from how it is used.
          ensemble: folders of more trained runs.

        Raises:
          UserError: no such run, an override that would make it another model, or a run of the ensemble that is none or is named twice.
        """
        check_folder("--workdir", workdir)
        manifest = Manifest.read(workdir)
        if manifest is None:
            raise UserError(f"--workdir={workdir} holds no run; train one there with 'train --config=... --workdir={workdir}'")
        changeable = CHANGEABLE if sweep_of(workdir) is None else CHANGEABLE[1:]  # a trial's test files are no other split's either
        members = _members(workdir, ensemble)
        if config is not None:
            wanted = configs.load(config, overrides)
            manifest.check_config(wanted, workdir, ignore=changeable)
            return cls(wanted, workdir, members)
        for override in overrides:
            if override.partition(".")[0] not in changeable:
                key = override.partition("=")[0]
                raise UserError(f"config.{key} cannot change after training; these can: {', '.join(part + '.*' for part in changeable)}")
        return cls(configs.prepare(configs.from_dict(manifest.config), overrides), workdir, members)

    def check_splits(self, splits: Sequence[str]) -> None:
        """Raise `UserError` if one of these splits is the test split of a sweep's trial and still closed."""
        if "test" in splits:
            for folder in (self.workdir, *self.members):
                check_test_split(folder)


def check_folder(flag: str, folder: Path) -> None:
    """Raise `UserError` if `folder` neither is one nor can be made, because it or what it would lie in is a file."""
    there = next(one for one in (folder, *folder.absolute().parents) if os.path.lexists(one))
    if not there.is_dir():
        raise UserError(f"{flag}={folder}: {there} is not a folder; name another")


def _members(workdir: Path, folders: Sequence[Path]) -> dict[Path, ConfigDict]:
    """The runs of an ensemble beside that of `workdir`, and the config that each was trained with."""
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
