"""`stop DIR TRIAL`: stop one trial of a sweep for good, from any terminal that sees its folder."""

import argparse
from pathlib import Path

from attnlab.flags import add_flags

EPILOG = """\
The trial saves and leaves within seconds; one that has not begun never does. The choice is then made without it, and choice.json and
the report say so. --undo lets it run again, as long as the choice of its variant is not frozen."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `stop` to its parser: the folder of a sweep, the name of a trial,
    `--reason` and `--undo`.
    """
    parser.add_argument("directory", metavar="DIR", type=Path, help="the folder of a sweep")
    meaning = "its name as 'status' shows it: CANDIDATE/seedN"
    parser.add_argument("trial", metavar="TRIAL", help=meaning)
    add_flags(parser, {"--reason=TEXT": "kept beside the choice"}, default="")
    add_flags(parser, {"--undo": "let a trial that was stopped run again"})
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Records that a trial of a sweep is stopped for good, or with `--undo` that it may run again,
    prints which, and returns 0.

    Returns:
      0.

    Raises:
      UserError: no such sweep or trial, one that has settled, or one that was not stopped.
    """
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import stop_trial, take_back

    Plan.of_sweep(arguments.directory)
    if arguments.undo:
        take_back(arguments.directory, arguments.trial)
        print(f"{arguments.trial} may run again: the next launcher takes it")
        return 0
    trial = stop_trial(arguments.directory, arguments.trial, arguments.reason)
    message = "is asked to save and leave" if trial.state == "running" else "will not run"
    print(f"{arguments.trial} {message}")
    return 0
