"""`report DIR`: what a sweep has shown so far, as a table, Markdown, CSV, JSON and one HTML page; reads records only."""

from __future__ import annotations

import argparse
from pathlib import Path

INTERVALS = ("t", "bootstrap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and how to show it."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="the folder of a sweep, finished or not")
    parser.add_argument("--latex", action="store_true", help="write report.tex too: the main table, for booktabs")
    parser.add_argument("--interval", choices=INTERVALS, default="t", help="of means over seeds: Student's t (default) or BCa bootstrap")


def run(arguments: argparse.Namespace) -> int:
    """Write the report into the folder and print its tables; needs neither jax nor a network.

    Returns:
      0, whatever the verdict.

    Raises:
      UserError: the folder holds no sweep, or a damaged record.
    """
    from attnlab.experiments.reporting import report

    report.write(arguments.directory, arguments.interval, tex=arguments.latex)
    return 0
