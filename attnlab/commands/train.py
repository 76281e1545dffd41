"""`train`: from a config to a trained run with a table and pictures; the same command again resumes
it.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from attnlab.api.training import Training
from attnlab.commands import session
from attnlab.data import SPLITS
from attnlab.flags import add_flags
from attnlab.records import tracking
from attnlab.records.manifest import Manifest
from attnlab.training.run import Run
from attnlab.training.session import Outcome


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags `--dry-run`, `--accept-changed-code` and `--track` to a parser."""
    meaning = "print what it will take (parameters, bytes, FLOPs, minutes); train and write nothing"
    add_flags(parser, {"--dry-run": meaning})
    session.add_acceptance(parser)
    tracking.add_flag(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trains the config of `--config` in `--workdir`, from its last checkpoint if there is one;
    once done, evaluates it and writes the report; with `--dry-run` only prints what it will take;
    returns the exit code.

    Returns:
      0 when done, 1 when diverged or a metric of the user's has failed, 128 + the signal's number when interrupted.
    """
    began = time.perf_counter()
    config = arguments.config
    if config is None and arguments.workdir and Manifest.read(arguments.workdir):
        config = arguments.workdir  # a run goes on as it was begun
    return fit(session.config_path(config, arguments.workdir), arguments, began)


def fit(config: str | Mapping[str, Any], arguments: argparse.Namespace, began: float) -> int:
    """Trains a config (path or nested values) in `--workdir` by the flags of `train` and, once
    done, evaluates and reports it, or with `--dry-run` only prints what it will take; returns the
    exit code; `began` is the clock at the command's start.
    """
    splits = ("train", "valid") if arguments.dry_run else SPLITS
    of_flags = arguments.workdir, splits, arguments.track, arguments.accept_changed_code
    training = Training.of(config, arguments.overrides, *of_flags)
    if arguments.dry_run:
        from attnlab.commands.dry_run import print_outlook

        print_outlook(training.run)
        return 0
    with training.trained(began) as outcome:
        return _finish(training.run, outcome, training.tracked is not None)


def _finish(run: Run, outcome: Outcome, first: bool) -> int:
    """Prints how training ended, evaluates and reports a run that is done (in the `first` process,
    or in all if its state is divided), and returns the exit code: 0, 1 or 128 + signal.
    """
    workdir = run.workdir
    if outcome.seconds_to_first_step is not None:
        line = f"first step {outcome.seconds_to_first_step:.1f} s after the command"
        print(line, file=sys.stderr)
    if outcome.state == "diverged":
        print(f"diverged: {outcome.message}; the last good checkpoint is kept in {workdir}")
        return 1
    if outcome.state == "interrupted":
        print(
            f"interrupted at step {outcome.step}: saved in {workdir}; the same command goes on from"
            " here"
        )
        return 128 + int(outcome.signal or 0)
    if first or run.updates.layout is not None:
        from attnlab.analysis.results import report

        return int(not report(run.updates, run.task, workdir, run.code, first))
    return 0
