"""`prune DIR`: what the states of finished runs take on the disk, and taken with `--yes`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnlab.records.states import Pruning

EPILOG = """\
What report, evaluate, generate, score, inspect and export need always stays. A run without its latest states cannot be trained
further; one with its parameters alone cannot be continued either. Runs that are not done, or are at work, are left as they are."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `prune` to its parser: the folder, `--keep` and `--yes`."""
    from attnlab.records.states import BEST, KEEPS

    parser.add_argument("directory", metavar="DIR", type=Path, help="of a run, a trial or a sweep")
    meaning = "; ".join(f"{name}: {what}" for name, what in KEEPS.items() if name != "all")
    parser.add_argument(
        "--keep",
        choices=[name for name in KEEPS if name != "all"],
        default=BEST,
        help=f"{meaning} (default: {BEST})",
    )
    parser.add_argument("--yes", action="store_true", help="take it; without, it is only listed")
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Prints what goes of the states of a run, or of the finished trials of a sweep, and takes it
    with `--yes`.

    Returns:
      0.

    Raises:
      UserError: no run or sweep, one that is at work, a run that is not done, a damaged state.
    """
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import prunings
    from attnlab.progress import table
    from attnlab.records.files import check_folder
    from attnlab.records.states import check_idle, prunable

    directory, keep = arguments.directory, arguments.keep
    check_folder("DIR", directory)
    check_idle(directory)
    plan = Plan.read(directory)
    if plan is None:
        runs, left = [prunable(directory, keep)], 0
    else:
        for trial in plan.trials():
            check_idle(trial.workdir(directory))
        runs = prunings(plan, directory, keep)
        left = len(plan.trials()) - len(runs)
    rows = [
        (run.workdir, f"step {run.step}", run.files, run.size / 1e6) for run in runs if run.take
    ]
    if rows:
        table(f"{directory}: goes with --keep={keep}", ("run", "used", "files", "MB"), rows)
    files, size = sum(run.files for run in runs), sum(run.size for run in runs) / 1e6
    words = f"{size:,.1f} MB in {files:,} files of {len(rows)} runs" if rows else "nothing"
    if written := sum(run.writes for run in runs) / 1e6:
        words += f", for {written:,.1f} MB of parameters"
    if left:
        words += f"; {left} trials that are not done keep their states"
    if not arguments.yes or not rows:
        print(f"would go: {words}{'; --yes takes it' if rows else ''}")
        return 0
    _take(runs)
    print(f"gone: {words}")
    return 0


def _take(runs: Sequence[Pruning]) -> None:
    """Prunes each run under its lock; raises `UserError` if another process has taken it."""
    import jax

    from attnlab.progress import patience
    from attnlab.records.locks import RunLock
    from attnlab.training.pruning import prune

    jax.config.update("jax_platforms", "cpu")  # arrays go from file to file
    with patience("pruning"):
        for run in runs:
            with RunLock(run.workdir):
                prune(run)
