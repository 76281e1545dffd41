"""`status DIR`: the progress of a sweep, from any terminal; reads only, but for `--page`."""

import argparse
import sys
import time
from pathlib import Path

from attnlab.flags import add_flags

FLAGS = {
    "--watch": "stay and show it anew until all trials have settled",
    "--page": "stay until the sweep is over or left, and keep DIR/status.html fresh for a browser",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `status` to its parser: the folder of a sweep, `--watch`, `--page`."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="the folder of a sweep")
    add_flags(parser, FLAGS)


def run(arguments: argparse.Namespace) -> int:
    """Prints the tables of a sweep (its trials, those that run, the best, and why some failed)
    once; with `--watch` every 5 seconds, or as a live board on a terminal, until all trials have
    settled; with `--page` writes `status.html` again and again instead; returns 0.

    Returns:
      0, whatever the states.

    Raises:
      UserError: the folder holds no sweep, or a damaged record.
    """
    from attnlab.experiments import report
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.run import Board, best, overview, running, shown, summary, troubles
    from attnlab.progress import table

    directory = arguments.directory
    if arguments.page:
        for extent in report.keep_page(directory):
            print(f"{directory / 'status.html'}: {extent}", flush=True)
        return 0
    if arguments.watch and sys.stdout.isatty():
        with Board(Plan.of_sweep(directory), directory, stream=sys.stdout) as board:
            while not board.settled:
                time.sleep(1)
                board.plan = Plan.of_sweep(directory)
                board.tick()
        return 0
    while True:
        plan = Plan.of_sweep(directory)
        states = shown(plan, directory)
        table(plan.name, *overview(plan, states))
        tables = {
            "running": running(plan, directory, states, time.time()),
            "best so far": best(plan, directory, states),
        }
        for title, (columns, rows) in tables.items():
            if rows:
                table(f"\n{title}", columns, rows)
        print("", *troubles(states), summary(states), sep="\n", flush=True)
        if not arguments.watch or all(state.settled for state in states):
            return 0
        time.sleep(5)
