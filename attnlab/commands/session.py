"""Shared by the commands that work on a run: its config, its folder, and jax set up once."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.records import provenance
from attnlab.records.files import check_folder as check_folder
from attnlab.records.manifest import Manifest
from attnlab.training.run import start_jax as start_jax

if TYPE_CHECKING:
    from attnlab.api.stored import Stored
    from attnlab.api.trained import Run


def config_path(path: str | None, workdir: str | None = None) -> str:
    """Returns `path`, the value of `--config`; raises `UserError` if it is None, and says in it
    that `workdir` (if given) holds no run.
    """
    if path is None:
        no_run = f", and {workdir} holds no run" if workdir else ""
        raise UserError(
            f"no --config given{no_run}; for example --config=configs/translation.py:rnnsearch ('list"
            " configs' shows all)"
        )
    return path


def print_notes(lines: Iterable[str]) -> None:
    """Prints lines as notes to stderr."""
    for line in lines:
        print(f"note: {line}", file=sys.stderr)


def manifest_of(workdir: Path) -> Manifest:
    """Returns the manifest of the run in a folder; raises `UserError` where there is none."""
    check_folder("RUN", workdir)
    return Manifest.of_run(workdir)


def folder_of(arguments: argparse.Namespace) -> Path:
    """Returns the folder of the run that a command works on, given as RUN or `--workdir`; raises
    `UserError` if none is given.

    Raises:
      UserError: none is given.
    """
    if not arguments.workdir:
        raise UserError(
            "no --workdir given; name the folder of a trained run, as RUN or by the flag"
        )
    return Path(arguments.workdir)


def stored_run(arguments: argparse.Namespace) -> "Stored":
    """Returns a `Stored` of the trained run in `--workdir`, together with those of `--ensemble`,
    with the stored config and overrides that only change how it is used; loads no parameters.

    With `--config` it is that config with all overrides, which must equal the stored one but for
    settings for its use.

    Raises:
      UserError: no such run, an override that would make it another model, or a vocabulary or code
        that is not what it was made from.
    """
    from attnlab.api.stored import Stored

    workdir = folder_of(arguments)
    names = (getattr(arguments, "ensemble", None) or "").split(",")
    folders = [Path(name.strip()) for name in names if name.strip()]
    accepted = getattr(arguments, "accept_changed_code", False)
    return Stored.find(workdir, arguments.overrides, arguments.config, folders, accepted)


def open_run(stored: "Stored", splits: Sequence[str] = ()) -> "Run":
    """Sets up jax, prints notes on the stored run to stderr, and returns its `Run`, with parameters
    and the data of `splits` loaded; see `attnlab.api.trained.open_run`.
    """
    stored.check_splits(splits)
    start_jax()
    from attnlab.api import trained

    print_notes(stored.notes())
    run = trained.open_run(stored, splits)
    print_notes(run.task.longer)
    return run


def add_acceptance(parser: argparse.ArgumentParser) -> None:
    """Adds the flag `--accept-changed-code`, which all commands that use a stored run have, to a
    parser.
    """
    meaning = "go on although code of yours, which the config names, has changed; a note says which"
    parser.add_argument(provenance.FLAG, action="store_true", help=meaning)


def add_ensemble(parser: argparse.ArgumentParser) -> None:
    """Adds the flag `--ensemble`, of commands that can average several runs, to a parser."""
    meaning = (
        "more trained runs of the same vocabulary, of all of which the mean probability counts"
    )
    parser.add_argument("--ensemble", metavar="FOLDER,...", help=meaning)
