"""`train`: from a config to a trained run with a table and pictures; the same command again resumes
it.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path

from attnlab import config as configs
from attnlab import processes
from attnlab.commands import session
from attnlab.data import SPLITS
from attnlab.progress import Progress
from attnlab.records import provenance, tracking
from attnlab.records.locks import RunLock
from attnlab.records.manifest import Manifest
from attnlab.records.sealed import check_no_trial
from attnlab.training.run import Run
from attnlab.training.session import Interrupt, Outcome, Session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags `--dry-run`, `--accept-changed-code` and `--track` to a parser."""
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print what it will take (parameters, bytes, FLOPs, minutes); train and write nothing",
    )
    session.add_acceptance(parser)
    tracking.add_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trains the config of `--config` in `--workdir`, from its last checkpoint if there is one;
    once done, evaluates it and writes the report; with `--dry-run` only prints what it will take.

    Returns:
      0 when done, 1 when diverged, 128 + the signal's number when interrupted.
    """
    began = time.perf_counter()
    if arguments.config is None and arguments.workdir and Manifest.read(arguments.workdir):
        arguments.config = arguments.workdir  # a run goes on as it was begun
    config = session.read_config(arguments.config, arguments.overrides)
    workdir = Path(arguments.workdir or session.default_workdir(arguments.config, config))
    first = processes.index() == 0  # the others write nothing there
    if first:
        check_no_trial(workdir)
    begun = session.existing_run(workdir) if first else Manifest.read(workdir)
    tracked = tracking.Tracking.choose(workdir, arguments.track) if first else None
    if begun is not None:  # an older run goes on as it was begun
        config = configs.as_stored(config, begun.config, arguments.overrides)
    file = configs.find_file(arguments.config.partition(":")[0], "config file")
    code = provenance.of(config, accept=arguments.accept_changed_code, config_file=file)
    session.start_jax()
    from attnlab.tasks import TASKS

    splits = ("train", "valid") if arguments.dry_run else SPLITS
    run = Run.prepare(TASKS.resolve(config.task), config, workdir, splits, begun, code)
    if arguments.dry_run:
        from attnlab.commands.dry_run import print_outlook

        print_outlook(run)
        return 0
    with contextlib.ExitStack() as readers:
        with (
            RunLock(workdir) if first else contextlib.nullcontext(),
            Interrupt() as interrupt,
            Progress(
                config.training.steps, every=config.training.log_every, item=run.task.item
            ) as progress,
        ):
            if tracked is not None:
                readers.enter_context(tracked.beside(workdir))
            outcome = run.fit(Session(progress, interrupt, began))
        return _finish(run, outcome, interrupt, first)


def _finish(run: Run, outcome: Outcome, interrupt: Interrupt, first: bool) -> int:
    """Prints how training ended, reports if it is done, and returns the exit code."""
    workdir = run.workdir
    if outcome.seconds_to_first_step is not None:
        print(f"first step {outcome.seconds_to_first_step:.1f} s after the command")
    if outcome.state == "diverged":
        print(f"diverged: {outcome.message}; the last good checkpoint is kept in {workdir}")
        return 1
    if outcome.state == "interrupted":
        print(
            f"interrupted at step {outcome.step}: saved in {workdir}; the same command goes on from"
            " here"
        )
        return 128 + int(interrupt.signal or 0)
    if first or run.updates.layout is not None:
        from attnlab.analysis.results import report

        report(run.updates, run.task, workdir, run.code, first)
    return 0
