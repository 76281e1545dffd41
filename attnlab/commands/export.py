"""`export DIR --to=TRACKER`: the trials of a sweep as runs of Weights & Biases, MLflow or
TensorBoard, on this disk; reads records only.
"""

from __future__ import annotations

import argparse
from pathlib import Path

TRACKERS = ("wandb", "mlflow", "tensorboard")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, for whom, and where to."""
    parser.add_argument(
        "directory", metavar="DIR", type=Path, help="the folder of a sweep, finished or not"
    )
    parser.add_argument(
        "--to",
        choices=TRACKERS,
        required=True,
        help="who shall read it; tensorboard's HParams page needs nothing else",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, help="where to write (default: DIR/exports)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Write what is new or has changed since the last time, and say how many runs that were.

    Returns:
      0.

    Raises:
      UserError: the folder holds no sweep, a damaged record; the tracker's package is not
        installed.
    """
    from attnlab.experiments import report

    done = report.export(
        arguments.directory, arguments.to, arguments.out or arguments.directory / "exports"
    )
    changed = f"{done.replaced} replaced because their records have changed"
    print(f"export: {done.written} runs written, {changed}, {done.kept} left as they were")
    print(f"look:   {done.hint}")
    return 0
