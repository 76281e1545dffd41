"""`sweep`: from an experiment file to a report; the same command again goes on where it was."""

from __future__ import annotations

import argparse
import functools
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError

if TYPE_CHECKING:
    from attnlab.experiments.plan import Plan
    from attnlab.experiments.running.board import Board
    from attnlab.experiments.running.jobs import Executor, Job
    from attnlab.experiments.running.slots import Slot
    from attnlab.experiments.running.stop import Stop

EPILOG = """\
An experiment file defines get_experiment(argument) -> attnlab.experiments.Experiment; experiments/quickstart.py is a short one.
Every candidate and seed is a trial in DIR/trials, trained in a process of its own: a GPU each where there are some, else a core
each. Ctrl-C once lets trials save and stops, twice kills them. Nothing that is done is run again.
--config.a.b=value changes a setting of all variants; what the command line changes is part of the experiment."""
STACK = "train trials that differ in seed or numbers only as one program (auto: where trials have GPUs)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, the folder, and how to run."""
    from attnlab.commands import session
    from attnlab.experiments.running import slurm

    parser.add_argument("file", metavar="FILE.py[:ARGUMENT]", help="the experiment")
    parser.add_argument("--dir", metavar="DIR", help="where the sweep is kept (default: runs/<name of the file>)")
    parser.add_argument("--seeds", metavar="0,1,2", help="instead of the file's")
    parser.add_argument("--slots", type=int, metavar="N", help="trials at a time (default: one a GPU, else one a core)")
    parser.add_argument("--retry-failed", action="store_true", help="run trials again that have failed")
    parser.add_argument("--executor", choices=("local", "slurm"), default="local", help="where trials run (default: local)")
    parser.add_argument("--stack", choices=("auto", "on", "off"), default="auto", help=STACK)
    parser.add_argument("--no-final", action="store_true", help="stop before anything is chosen and the test split is read")
    parser.add_argument("--dry-run", action="store_true", help="show the plan, run and write nothing")
    session.add_acceptance(parser)
    slurm.add_arguments(parser)
    parser.epilog = EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Run the sweep.

    Returns:
      0 when all is done, 1 when a trial failed, diverged or could not be run, 128 + the signal's number when interrupted.
    """
    from attnlab.commands.session import check_folder
    from attnlab.experiments import planned
    from attnlab.experiments.loading import Changes
    from attnlab.experiments.running import slurm
    from attnlab.experiments.running.launcher import lock
    from attnlab.experiments.running.slots import local_slots

    directory = Path(arguments.dir or default_directory(arguments.file))
    check_folder("--dir", directory)
    _check_contents(directory)
    changes = Changes(tuple(arguments.overrides), seeds(arguments.seeds), arguments.accept_changed_code)
    if arguments.dry_run:
        show(planned.draft(arguments.file, directory, changes), directory)
        return 0
    slots = local_slots(arguments.slots) if arguments.executor == "local" else slurm.check(arguments)
    if arguments.executor == "slurm" and arguments.stack == "on":
        raise UserError("--stack=on: workers of --executor=slurm take one trial at a time; leave it out")
    if not directory.exists():
        planned.ensure(arguments.file, directory, changes)  # so that a bad file leaves no folder
    with lock(directory):
        planned.ensure(arguments.file, directory, changes)
        return conduct(directory, arguments, slots)


def seeds(listed: str | None) -> tuple[int, ...]:
    """The seeds of "0,1,2"; () for None.

    Raises:
      UserError: not whole numbers with commas between.
    """
    try:
        return tuple(int(one) for one in listed.split(",")) if listed is not None else ()
    except ValueError:
        raise UserError(f"--seeds={listed}: expected whole numbers with commas between, such as 0,1,2") from None


def default_directory(file: str) -> str:
    """`runs/<name of the file>`, with its argument if there is one."""
    path, _, argument = file.partition(":")
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", argument).strip("-.")
    return f"runs/{Path(path).stem}{'-' if slug else ''}{slug}"


def conduct(directory: Path, arguments: argparse.Namespace, slots: Sequence[Slot]) -> int:
    """Run what is left of the sweep, whose lock is held, and report."""
    from attnlab.experiments.running.board import Board, troubles
    from attnlab.experiments.running.launcher import Launcher, read, retry_failed
    from attnlab.experiments.running.state import look_at_all
    from attnlab.experiments.running.stop import Stop

    if arguments.retry_failed:
        print(f"{retry_failed(directory)} failed trials are run again", file=sys.stderr)
    with Stop() as stop, Board(read(directory), directory, len(slots)) as board:
        executor = _executor(directory, arguments, slots, board, stop)
        launcher = Launcher(directory, executor, board, stop, _arrangement(directory, arguments, slots))
        failures = launcher.train()
        if stop.signal is None and not failures and not arguments.no_final:
            failures = launcher.finish()
    wrong = [one for one in look_at_all(read(directory), directory) if one.state in ("failed", "diverged")]
    for line in [*troubles(wrong), *failures]:
        print(line, file=sys.stderr)
    if stop.signal is not None:
        print(f"interrupted: all is saved in {directory}; the same command goes on from here", file=sys.stderr)
        return 128 + stop.signal
    from attnlab.experiments.reporting import report

    report.write(directory)
    return 1 if wrong or failures else 0


def _executor(directory: Path, arguments: argparse.Namespace, slots: Sequence[Slot], board: Board, stop: Stop) -> Executor:
    """The local queue, or the cluster's."""
    if arguments.executor == "slurm":
        from attnlab.experiments.running import slurm

        return slurm.executor(directory, arguments, board, stop)
    from attnlab.experiments.running.launcher import read
    from attnlab.experiments.running.queue import Queue

    queue = Queue(directory, slots, board, stop)
    if read(directory).search is not None:
        from attnlab.experiments.running.searching import Watch

        queue.watch = Watch(read(directory), directory)
    return queue


def _arrangement(directory: Path, arguments: argparse.Namespace, slots: Sequence[Slot]) -> Callable[[list[Job]], list[Job]]:
    """Whether trials train together: several in a program on accelerators, where one alone leaves most of it idle."""
    from attnlab.experiments.running.jobs import stacked
    from attnlab.experiments.running.launcher import read

    search = read(directory).search
    prunes = search is not None and search["pruner"] is not None  # stops trials one by one
    gpus = any("CUDA_VISIBLE_DEVICES" in slot.environment for slot in slots)
    together = not prunes and (arguments.stack == "on" or (arguments.stack == "auto" and gpus))
    return functools.partial(stacked, slots=len(slots)) if together else list


def show(plan: Plan, directory: Path) -> None:
    """Print a plan: its candidates and how many trials they make; of a search, how many it may come to."""
    from attnlab.progress import table

    rows = [(one.id, one.variant, one.parameters, one.flops, _settings(one.tuned)) for one in plan.candidates]
    if rows or plan.search is None:
        table(plan.question, ("candidate", "variant", "parameters", "FLOPs per step", "tuned"), rows)
    else:
        print(f"{plan.question}\n{', '.join(plan.variants)}")
    print(outlook(plan, directory))


def outlook(plan: Plan, directory: Path) -> str:
    """How many trials there are, or may be, how many of them the folder has already, and which a frozen choice leaves out."""
    from attnlab.experiments.running.selection import Choice, wanted
    from attnlab.experiments.running.state import recorded

    choice = Choice.read(directory)
    trials = wanted(plan, choice)
    settled = sum(recorded(one, directory).settled for one in trials)
    frozen = [variant for variant in plan.variants if choice is not None and choice.candidate(variant) is not None]
    if plan.search is None or len(frozen) == len(plan.variants):
        text = f"{len(trials)} trials: seeds {', '.join(map(str, plan.seeds))}"
    else:
        text = _searched(plan, len(plan.variants) - len(frozen), sum(one.candidate.variant in frozen for one in trials))
    if settled:
        text += f"; {settled} of them have settled before"
    if left := len(plan.trials()) - len(trials):
        text += f"; the choice is frozen ({', '.join(frozen)}), so {left} trials of candidates that were not chosen are left out"
    return text


def _searched(plan: Plan, variants: int, more: int) -> str:
    """The outlook of a search for so many variants, beside `more` trials of those whose choice is frozen."""
    assert plan.search is not None
    first, *others = plan.seeds
    searched = f"{plan.search['trials']} settings of {', '.join(plan.search['space'])} for each of {variants} variants, with seed {first}"
    chosen = f"; the best of each with seeds {', '.join(map(str, others))} too" if others else ""
    frozen = f"; {more} of variants whose choice is frozen" if more else ""
    return f"{searched}{chosen}{frozen}: at most {variants * (plan.search['trials'] + len(others)) + more} trials"


def _settings(tuned: object) -> str:
    return ", ".join(f"{key}={value}" for key, value in tuned.items()) if isinstance(tuned, dict) else ""


def _check_contents(directory: Path) -> None:
    """Raise `UserError` if the folder is there and holds something that is no sweep."""
    if directory.is_dir() and not (directory / "plan.json").exists():
        strangers = sorted(name for name in os.listdir(directory) if not name.startswith(".") and name != "code")
        if strangers:
            raise UserError(f"--dir={directory} is not empty and holds no sweep ({strangers[0]} is there); name a new or empty folder")
