"""Flags that are numbers, each within two bounds stated in its help; and the folder of a run, as an
argument or a flag.
"""

from __future__ import annotations

import argparse
from typing import Any

from attnlab.errors import UserError

RUN_HELP = "where the run is kept: checkpoints, metrics, manifest, pictures"


def add_number(
    parser: argparse._ActionsContainer,
    flag: str,
    least: float,
    most: float,
    help: str,
    **options: Any,
) -> None:
    """Adds a command-line flag to `parser` for a number from `least` to `most`, whole if `least` is
    an int; argparse refuses other values.

    Args:
      parser: the parser, or a group of it.
      flag: the flag with its dashes.
      least, most: the bounds, both included.
      help: its meaning; the bounds are appended.
      options: other arguments of `add_argument`.
    """
    whole = isinstance(least, int)
    bounds = f"{least:,} to {most:,}"

    def bounded(text: str) -> float:
        """Parses the text of the flag as a number; raises ArgumentTypeError if it is none or out of
        bounds.
        """
        try:
            number: float = int(text) if whole else float(text)
        except ValueError:
            number = float("nan")
        if not least <= number <= most:
            kind = "whole number" if whole else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is no {kind} from {bounds}")
        return number

    options = {"metavar": "N", **options}
    parser.add_argument(flag, type=bounded, help=f"{help}; {bounds}", **options)


def add_run(parser: argparse.ArgumentParser, meaning: str = RUN_HELP) -> None:
    """Add the folder of a run to a parser: RUN, or `--workdir`."""
    parser.add_argument("run_folder", nargs="?", metavar="RUN", help=meaning)
    parser.add_argument("--workdir", metavar="FOLDER", help="the same, as a flag")


def named_run(arguments: argparse.Namespace) -> str | None:
    """The folder of a run that arguments of `add_run` name, or None.

    Raises:
      UserError: they name two.
    """
    named = {arguments.run_folder, arguments.workdir} - {None}
    if len(named) > 1:
        raise UserError(
            f"two runs are named, {arguments.run_folder} and --workdir={arguments.workdir}; leave"
            " one out"
        )
    folder: str | None = named.pop() if named else None
    return folder
