"""`train`: from a config to a trained run with a table and pictures; the same command again resumes it."""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab.commands import session
from attnlab.errors import UserError
from attnlab.progress import Progress
from attnlab.training.manifest import Manifest
from attnlab.training.records import RunLock, State, Status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """No flags of its own."""


def run(arguments: argparse.Namespace) -> int:
    """Train and report.

    Returns:
      0 when done, 1 when diverged, 128 + the signal's number when interrupted.
    """
    began = time.perf_counter()
    config = session.wanted_config(arguments.config, arguments.overrides)
    if arguments.workdir == "":
        raise UserError("--workdir= is empty; name a folder, or leave the flag out for one below runs/")
    workdir = Path(arguments.workdir or default_workdir(arguments.config, config))
    previous = _previous(workdir, config)
    session.start_jax()
    from attnlab.tasks import TASKS
    from attnlab.training.interrupt import Interrupt
    from attnlab.training.loop import train
    from attnlab.training.optimizers import build_optimizer
    from attnlab.training.parallel import backend

    kind = TASKS.resolve(config.task)
    kind.check(config)
    build_optimizer(config.optimizer, config.schedule, steps=config.training.steps, clip=config.training.clip)  # complains early
    place = backend(config.parallel.backend, config.parallel.devices)
    saved = previous is not None and kind.saved(workdir)
    task = kind.load(config, workdir if saved else None, ("train", "valid", "test"))
    batches = task.batches(place.count * config.training.accumulate)
    with (
        RunLock(workdir),
        Interrupt() as interrupt,
        Progress(config.training.steps, every=config.training.log_every) as progress,
    ):
        _describe(config, task, place, workdir, progress, _previous(workdir, config))
        for line in task.notes(batches):
            progress.note(line)
        with _failure_recorded(workdir, config):
            outcome = train(config, task, batches, workdir, place, progress, interrupt, began)
            Status(workdir, config.training.steps).update(outcome.state, outcome.step, outcome.message)
    if outcome.seconds_to_first_step is not None:
        print(f"first step {outcome.seconds_to_first_step:.1f} s after the command")
    if outcome.state == "diverged":
        print(f"diverged: {outcome.message}; the last good checkpoint is kept in {workdir}")
        return 1
    if outcome.state == "interrupted":
        print(f"interrupted at step {outcome.step}: saved in {workdir}; the same command goes on from here")
        return 128 + int(interrupt.signal or 0)
    from attnlab.commands.results import report

    report(config, task, workdir)
    return 0


def default_workdir(path: str, config: ConfigDict) -> str:
    """`runs/<config file>-<system>-<hash of the config without parallel>`."""
    lasting = {key: node for key, node in configs.to_dict(config).items() if key != "parallel"}  # which may change on resume
    return f"runs/{Path(path.partition(':')[0]).stem}-{config.system.name}-{configs.config_hash(lasting)}"


def _previous(workdir: Path, config: ConfigDict) -> Manifest | None:
    """The manifest of an earlier start of this very run; None for a new one."""
    manifest = session.existing_run(workdir)
    if manifest is not None:
        manifest.check_config(config, workdir)
    return manifest


def _describe(config: ConfigDict, task: Any, place: Any, workdir: Path, progress: Progress, previous: Manifest | None) -> None:
    """Write vocabularies and manifest of a new run; of a resumed one, check the data and tell what else has changed."""
    import jax

    devices = {"kind": jax.devices()[0].device_kind, "count": place.count, "processes": jax.process_count()}
    manifest = Manifest.build(config, devices=devices, data=dict(task.data.fingerprints))
    if previous is not None and previous.data != manifest.data:
        changed = [split for split, digest in manifest.data.items() if previous.data.get(split) != digest]
        raise UserError(f"the data of workdir {workdir} has changed since it began (split {', '.join(changed)}); use another --workdir")
    if jax.process_index() == 0 and not (previous and task.saved(workdir)):
        task.save(workdir)  # a vocabulary that was lost is learned again: it is a function of the data
    if previous is None:
        if jax.process_index() == 0:
            manifest.write(workdir)  # last: a workdir with a manifest is complete
        return
    for change in previous.environment_changes(manifest):
        progress.note(f"note: not what this run began with: {change}")


class _failure_recorded:
    """Leaves "failed" and the error's text in `status.json` if the block raises after the run has begun; the error goes on."""

    def __init__(self, workdir: Path, config: ConfigDict) -> None:
        self.workdir, self.steps = workdir, config.training.steps

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        status = Status.read(self.workdir) or {}
        if error is None or status.get("pid") != os.getpid():
            return  # refused before the first step: the folder stays as it was
        state: State = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        with contextlib.suppress(UserError, OSError):  # where the disk is full, the first error is the one to tell
            Status(self.workdir, self.steps).update(state, status["step"], f"{type(error).__name__}: {error}")
