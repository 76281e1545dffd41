"""`work DIR`: take trials of a planned sweep, on any machine that sees its folder, until nothing is
left.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

EPILOG = """\
As many as you like may work in one folder at once, beside a launcher ('sweep') or without one: the trials' own locks decide who takes
which. A worker never chooses: 'sweep' with the same file and --dir does, when all trials have settled, and reads the test split."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and how to work."""
    from attnlab.commands import sweep_flags

    parser.add_argument("directory", metavar="DIR", type=Path, help="the folder of a sweep")
    sweep_flags.add_running(parser)
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Work.

    Returns:
      0 when nothing is left to take, 1 when a trial of the sweep has failed or diverged, 128 + the
      signal's number when interrupted.

    Raises:
      UserError: the folder holds no sweep, or code or data is not what it was planned with.
    """
    from attnlab.commands import sweep_flags
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import Part, Stop, devices_wanted, local_slots, work

    plan = Plan.of_sweep(arguments.directory)
    devices = arguments.devices_per_trial or devices_wanted(plan)
    slots = local_slots(arguments.slots, devices, plan.cores)
    part, limit = (
        Part.of(arguments.only, arguments.skip),
        sweep_flags.limit(arguments.trial_timeout),
    )
    with Stop() as stop:
        work(arguments.directory, slots, stop, part, limit, arguments.accept_cores)
    if stop.signal is not None:
        print(
            f"interrupted: all is saved in {arguments.directory}; others go on with it",
            file=sys.stderr,
        )
        return 128 + stop.signal
    return _ended(arguments.directory, plan.file)


def _ended(directory: Path, file: str) -> int:
    """Say what has gone wrong and what comes next; the exit code."""
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import Choice, look_at_all, troubles

    wrong = [
        one
        for one in look_at_all(Plan.of_sweep(directory), directory)
        if one.state in ("failed", "diverged")
    ]
    for line in troubles(wrong):
        print(line, file=sys.stderr)
    end = "nothing is left to take"
    if Choice.read(directory) is None:
        end += f"; 'sweep {file} --dir={directory}' chooses when all has settled"
    print(end)
    return 1 if wrong else 0
