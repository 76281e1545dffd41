"""`compare DIR DIR`: two sweeps side by side, and what differs between them; reads records only."""

import argparse
from pathlib import Path

from attnlab.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `compare` to its parser: the folders of two sweeps, and `--out`."""
    parser.add_argument("first", metavar="DIR", type=Path, help="the folder of a sweep")
    meaning = "another with the same measure; differences are its minus the first's"
    parser.add_argument("second", metavar="DIR2", type=Path, help=meaning)
    meaning = "write FILE.md (both tables) or FILE.csv (the first, nothing rounded) too"
    parser.add_argument("--out", metavar="FILE", type=Path, help=meaning)


def run(arguments: argparse.Namespace) -> int:
    """Prints the two tables that compare two sweeps, and writes both to `--out` if that is a .md
    file, or the first, unrounded, if it is a .csv file; returns 0, whatever differs; raises
    `UserError` for another ending or sweeps that cannot be compared. Needs no jax.

    Raises:
      UserError: a folder holds no sweep, or a damaged record; the sweeps cannot be compared;
        `--out` is a file of another kind.
    """
    from attnlab.experiments import report

    if arguments.out is not None and arguments.out.suffix not in (".md", ".csv"):
        raise UserError(
            f"--out={arguments.out}: the name of a file that ends in .md or .csv is needed"
        )
    if arguments.first.resolve() == arguments.second.resolve():
        raise UserError(f"{arguments.first} is named twice; name two sweeps")
    report.write_across(arguments.first, arguments.second, arguments.out)
    return 0
