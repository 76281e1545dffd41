"""`prune DIR`: what the states of finished runs take on the disk; `--yes` takes it."""

import argparse
from pathlib import Path

from attnlab.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `prune` to its parser: the folder, `--keep` and `--yes`."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="of a run, a trial or a sweep")
    meaning = "the state that is used, with the optimizer's (default), or the parameters of it"
    parser.add_argument("--keep", choices=("best", "best-params"), default="best", help=meaning)
    parser.add_argument("--yes", action="store_true", help="take it; without, it is only listed")


def run(arguments: argparse.Namespace) -> int:
    """Prints how many files of the saved states of a run, or of the finished trials of a sweep, are
    not needed by `--keep`, and deletes them with `--yes`; raises `UserError` for a run at work, not
    done or without scores; returns 0.

    Returns:
      0.

    Raises:
      UserError: no run or sweep, one at work, a run not done or not scored, a damaged state.
    """
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import recorded
    from attnlab.records.files import check_folder
    from attnlab.records.locks import RunLock, holder, is_held
    from attnlab.training.pruning import prunable, prune

    directory = arguments.directory
    check_folder("DIR", directory)
    plan = Plan.read(directory)
    trials = [] if plan is None else plan.trials()
    for folder in (directory, *(trial.workdir(directory) for trial in trials)):
        if is_held(folder):
            raise UserError(f"{folder} is at work ({holder(folder)}); wait for it, or stop it")
    done = [trial for trial in trials if recorded(trial, directory).state == "done"]
    if len(done) < len(trials):
        print(f"{len(trials) - len(done)} of {len(trials)} trials are not done: left as they are")
    runs, total = [directory] if plan is None else [x.workdir(directory) for x in done], 0
    for folder in runs:
        step, takes = prunable(folder, arguments.keep)
        files = [file for path in takes for file in path.rglob("*") if file.is_file()]
        size = sum(file.lstat().st_size for file in files)
        if takes:
            what = f"{len(files):,} files, {size / 1e6:,.1f} MB"
            print(f"{folder}: {what}; what is used, of step {step}, stays")
        total += size
    if arguments.yes:
        for folder in runs:
            with RunLock(folder):
                prune(folder, arguments.keep)
    words = f"{total / 1e6:,.1f} MB{'' if arguments.yes else '; --yes takes it'}"
    print(f"{'gone' if arguments.yes else 'would go'}: {words if total else 'nothing'}")
    return 0
