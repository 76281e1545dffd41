"""`work DIR`: take trials of a planned sweep, on any machine that sees its folder, until nothing is
left.
"""

import argparse
import sys
from pathlib import Path

from attnlab.commands import sweep_flags
from attnlab.records import tracking

EPILOG = """\
As many as you like may work in one folder at once, beside a launcher ('sweep') or without one: the trials' own locks decide who takes
which. A worker never chooses: 'sweep' with the same file and --dir does, when all trials have settled, and reads the test split."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `work` to its parser: the folder of the sweep, and the flags of
    `add_running`.
    """
    parser.add_argument("directory", metavar="DIR", type=Path, help="the folder of a sweep")
    sweep_flags.add_running(parser)
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Runs trials and evaluations of a planned sweep that no other process has taken, until none is
    left, and prints which trials failed; returns 0, 1 if a trial failed, 128 + signal if stopped.

    Returns:
      0 when nothing is left to take, 1 when a trial of the sweep has failed or diverged, 128 + the
      signal's number when interrupted.

    Raises:
      UserError: the folder holds no sweep, or code or data is not what it was planned with.
    """
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import Choice, Stop, devices_wanted, failures, local_slots, work

    plan = Plan.of_sweep(arguments.directory)
    devices = arguments.devices_per_trial or devices_wanted(plan)
    slots = local_slots(arguments.slots, devices, plan.cores)
    tracked = tracking.Tracking.choose(arguments.directory, arguments.track)
    with tracked.beside(arguments.directory), Stop() as stop:
        work(arguments.directory, slots, stop, sweep_flags.work_options(arguments))
    if stop.signal is not None:
        message = f"interrupted: all is saved in {arguments.directory}; others go on with it"
        print(message, file=sys.stderr)
        return 128 + stop.signal
    failed = failures(Plan.of_sweep(arguments.directory), arguments.directory)
    for line in failed:
        print(line, file=sys.stderr)
    message = "nothing is left to take"
    if Choice.read(arguments.directory) is None:
        sweep = f"'sweep {plan.file} --dir={arguments.directory}'"
        message += f"; {sweep} chooses when all has settled"
    print(message)
    return 1 if failed else 0
