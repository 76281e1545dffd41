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
    from attnlab.commands import sweep

    parser.add_argument("directory", metavar="DIR", type=Path, help="the folder of a sweep")
    parser.add_argument(
        "--slots",
        type=int,
        metavar="N",
        help="trials at a time (default: one a GPU, else one a core)",
    )
    sweep.add_running(parser)
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Work.

    Returns:
      0 when nothing is left to take, 1 when a trial of the sweep has failed or diverged, 128 + the
      signal's number when interrupted.

    Raises:
      UserError: the folder holds no sweep, or code or data is not what it was planned with.
    """
    from attnlab.commands import sweep
    from attnlab.experiments.run import (
        Choice,
        Part,
        Stop,
        devices_wanted,
        local_slots,
        look_at_all,
        read,
        troubles,
        work,
    )

    plan = read(arguments.directory)
    slots = local_slots(
        arguments.slots,
        (
            devices_wanted(plan)
            if arguments.devices_per_trial is None
            else arguments.devices_per_trial
        ),
    )
    part = Part.of(arguments.only, arguments.skip)
    with Stop() as stop:
        work(arguments.directory, slots, stop, part, sweep.limit(arguments.trial_timeout))
    if stop.signal is not None:
        print(
            f"interrupted: all is saved in {arguments.directory}; others go on with it",
            file=sys.stderr,
        )
        return 128 + stop.signal
    wrong = [
        one
        for one in look_at_all(read(arguments.directory), arguments.directory)
        if one.state in ("failed", "diverged")
    ]
    for line in troubles(wrong):
        print(line, file=sys.stderr)
    end = "nothing is left to take"
    if Choice.read(arguments.directory) is None:
        end += f"; 'sweep {plan.file} --dir={arguments.directory}' chooses when all has settled"
    print(end)
    return 1 if wrong else 0
