"""`report DIR`: the results of a sweep so far, as a table, Markdown, CSV, JSON and one HTML page;
reads records only.
"""

import argparse
from pathlib import Path

from attnlab.flags import add_flags

FLAGS = {
    "--latex": "write report.tex too: variant, mean with interval, difference; for booktabs",
    "--columns=A,B,C": "columns for report.tex, by their names in the main table; implies --latex",
}
INTERVALS = ("model", "bootstrap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `report` to its parser: the folder of the sweep, `--latex`,
    `--columns`, `--interval`.
    """
    meaning = "the folder of a sweep, finished or not"
    parser.add_argument("directory", metavar="DIR", type=Path, help=meaning)
    add_flags(parser, FLAGS)
    meaning = "of means over seeds: by the model of all variants (default) or each by BCa bootstrap"
    parser.add_argument("--interval", choices=INTERVALS, default="model", help=meaning)


def run(arguments: argparse.Namespace) -> int:
    """Writes the report of a sweep into its folder and prints its tables (of a sweep over several
    tasks, one report on all of them); needs neither jax nor a network; returns 0.

    Returns:
      0, whatever the verdict.

    Raises:
      UserError: the folder holds no sweep, or a damaged record, or the main table no such column.
    """
    from attnlab.experiments import report
    from attnlab.experiments.plan import read_tasks

    listed = arguments.columns
    columns = [] if listed is None else [name.strip() for name in listed.split(",")]
    write = report.write_over_tasks if read_tasks(arguments.directory) else report.write
    tex = arguments.latex or bool(columns)
    write(arguments.directory, arguments.interval, tex=tex, columns=columns)
    return 0
