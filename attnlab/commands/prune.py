"""`prune DIR`: what the states of finished runs take on the disk; `--yes` takes it."""

from __future__ import annotations

import argparse
from pathlib import Path

from attnlab.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `prune` to its parser: the folder, `--keep` and `--yes`."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="of a run, a trial or a sweep")
    parser.add_argument(
        "--keep",
        choices=("best", "best-params"),
        default="best",
        help="the state that is used, with the optimizer's (default), or the parameters of it",
    )
    parser.add_argument("--yes", action="store_true", help="take it; without, it is only listed")


def run(arguments: argparse.Namespace) -> int:
    """Prints what goes of the states of a run, or of the trials of a sweep that are done, and takes
    it with `--yes`; what report, evaluate, generate and export need stays.

    Returns:
      0.

    Raises:
      UserError: no run or sweep, one that is at work, a run that is not done, a damaged state.
    """
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import recorded
    from attnlab.progress import patience
    from attnlab.records.files import check_folder
    from attnlab.records.locks import RunLock, holder, is_held
    from attnlab.training.pruning import prunable, prune

    directory = arguments.directory
    check_folder("DIR", directory)
    plan = Plan.read(directory)
    trials = [] if plan is None else plan.trials()
    runs = [directory, *(trial.workdir(directory) for trial in trials)]
    for folder in runs:
        if is_held(folder):
            raise UserError(f"{folder} is at work ({holder(folder)}); wait for it, or stop it")
    if plan is not None:
        done = [trial for trial in trials if recorded(trial, directory).state == "done"]
        runs = [trial.workdir(directory) for trial in done]
        if len(done) < len(trials):
            print(
                f"{len(trials) - len(done)} of {len(trials)} trials are not done: left as they are"
            )
    prunings = [pruning for folder in runs if (pruning := prunable(folder, arguments.keep)).folders]
    for pruning in prunings:
        what = f"{pruning.files:,} files, {pruning.size / 1e6:,.1f} MB"
        print(f"{pruning.workdir}: {what}; what is used is of step {pruning.step}")
    size = sum(pruning.size for pruning in prunings) / 1e6
    whole = f"{size:,.1f} MB of {len(prunings)} runs" if prunings else "nothing"
    if not arguments.yes:
        print(f"would go: {whole}{'; --yes takes it' if prunings else ''}")
        return 0
    with patience("pruning"):
        for pruning in prunings:
            with RunLock(pruning.workdir):
                prune(pruning)
    print(f"gone: {whole}")
    return 0
