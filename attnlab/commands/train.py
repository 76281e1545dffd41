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
from attnlab.records import provenance
from attnlab.records.manifest import Manifest
from attnlab.records.sealed import check_no_trial
from attnlab.records.stream import RunLock
from attnlab.tasks.schemas import Settings
from attnlab.training.interrupt import Interrupt
from attnlab.training.run import Run
from attnlab.training.session import Session


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`--accept-changed-code`."""
    session.add_acceptance(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train and report.

    Returns:
      0 when done, 1 when diverged, 128 + the signal's number when interrupted.
    """
    began = time.perf_counter()
    config = session.read_config(arguments.config, arguments.overrides)
    workdir = Path(arguments.workdir or default_workdir(arguments.config, config))
    if stored := Manifest.read(workdir):  # an older run goes on as it was begun
        config = configs.as_stored(config, stored.config, arguments.overrides)
    file = configs.find_file(arguments.config.partition(":")[0], "config file")
    code = provenance.of(config, accept=arguments.accept_changed_code, config_file=file)
    first = processes.index() == 0  # the others read and write nothing there
    if first:
        check_no_trial(workdir)
        _check_workdir(workdir, config, code)
    session.start_jax()
    from attnlab.tasks import TASKS

    run = Run.prepare(TASKS.resolve(config.task), config, workdir, SPLITS, code)
    with (
        RunLock(workdir) if first else contextlib.nullcontext(),
        Interrupt() as interrupt,
        Progress(
            config.training.steps, every=config.training.log_every, item=run.task.item
        ) as progress,
    ):
        if first:
            _check_workdir(workdir, config, code)  # nobody can begin there any more
        outcome = run.fit(Session(progress, interrupt, began))
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
    from attnlab.analysis.results import compute_with_0, report

    if first:
        report(run.updates, run.task, workdir, code)
    elif run.updates.layout is not None:
        compute_with_0(run.updates, run.task, workdir)
    return 0


def default_workdir(path: str, config: Settings) -> str:
    """`runs/<config file>-<system>-<hash of the config without parallel>`."""
    lasting = {
        key: node for key, node in configs.to_dict(config).items() if key != "parallel"
    }  # which may change on resume
    return f"runs/{Path(path.partition(':')[0]).stem}-{config.system.name}-{configs.config_hash(lasting)}"


def _check_workdir(workdir: Path, config: Settings, code: provenance.Code) -> None:
    """Raise `UserError` if the folder holds anything but an earlier start of the same run."""
    manifest = session.existing_run(workdir)
    if manifest is not None:
        manifest.check_config(config, workdir)
        if provenance.saved_step(workdir) is not None:
            provenance.check(manifest.own_code, code, workdir)
