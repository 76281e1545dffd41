"""One run from its config to the end of training: what the `train` command and the trials of a sweep share.

jax is imported by the functions, not by the module: the command line imports this for `--help` too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from attnlab.errors import UserError, nearest
from attnlab.files import expanded
from attnlab.progress import Progress
from attnlab.training.interrupt import Interrupt
from attnlab.training.manifest import Manifest
from attnlab.training.records import State, Status
from attnlab.training.sealed import check_test_split

if TYPE_CHECKING:
    from attnlab.training.loop import Outcome


def start_jax() -> None:
    """Import jax with the persistent compile cache on: `$ATTNLAB_CACHE`, else `~/.cache/attnlab`; empty, or no home, turns it off.

    Raises:
      UserError: `$ATTNLAB_CACHE` begins with "~", and there is no home.
    """
    import jax

    folder = os.environ.get("ATTNLAB_CACHE")
    if folder is None:
        with contextlib.suppress(RuntimeError):  # neither $HOME nor an entry of the user, as in many containers
            folder = str(Path.home() / ".cache" / "attnlab")
    if folder:
        jax.config.update("jax_compilation_cache_dir", str(expanded(folder) / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def check(kind: Any, config: ConfigDict) -> None:
    """Check all of a config that needs no data, for a class of tasks.

    Raises:
      UserError: a checkpoint chosen by a score that is not known while training, or what task, optimizer and schedule find wrong.
    """
    from attnlab.training.optimizers import build_optimizer

    if config.checkpoint.by not in kind.evaluated:
        raise UserError(f"config.checkpoint.by={config.checkpoint.by!r}; {nearest(config.checkpoint.by, kind.evaluated)}")
    kind.check(config)
    build_optimizer(config.optimizer, config.schedule, steps=config.training.steps, clip=config.training.clip)


def check_scores(task: Any) -> None:
    """Check that a task has, of the data it has read, the score that chooses the checkpoint; `UserError`."""
    by = task.config.checkpoint.by
    if by not in task.measures:
        known = [name for name in task.evaluated if name in task.measures]
        raise UserError(f"config.checkpoint.by={by!r}: this data has no such score; {nearest(by, known)}")


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A run that is ready to begin, or to go on from what its folder holds.

    Attributes:
      config: complete and checked.
      workdir: where it is kept.
      task: with the data of the splits it was asked to read.
      batches: this process's share of each step's.
      place: the parallel backend.
    """

    config: ConfigDict
    workdir: Path
    task: Any
    batches: Any
    place: Any

    @classmethod
    def prepare(cls, kind: Any, config: ConfigDict, workdir: Path, splits: Sequence[str]) -> Prepared:
        """Check the config, find the devices and read the data; writes nothing.

        Args:
          kind: the class of the task.
          config: of the run.
          workdir: its vocabularies are taken if a run has begun there.
          splits: of the data; what is not among them is never opened.

        Raises:
          UserError: anything wrong with config, devices or data, or `workdir` holds a run of another config.
        """
        if "test" in splits:
            check_test_split(workdir)
        from attnlab.training.parallel import backend

        check(kind, config)
        place = backend(config.parallel.backend, config.parallel.devices)
        begun = _begun(workdir, config) is not None
        task = kind.load(config, workdir if begun and kind.saved(workdir) else None, splits)
        check_scores(task)
        return cls(config, workdir, task, task.batches(place.count * config.training.accumulate), place)

    def fit(self, progress: Progress, interrupt: Interrupt, began: float, until: int | None = None) -> Outcome:
        """Train to the end, or until told to stop; `status.json` says how it ended. The caller holds the lock of `workdir`.

        Args:
          progress: entered.
          interrupt: entered.
          began: `time.perf_counter()` at the start of the command.
          until: save and leave after this step, None for the last.

        Raises:
          UserError: data that has changed since the run began, a checkpoint that cannot be used, a full disk.
        """
        from attnlab.training.loop import train

        self.describe(progress)
        for line in self.task.notes(self.batches):
            progress.note(line)
        with _FailureRecorded(self.workdir, self.config):
            outcome = train(self.config, self.task, self.batches, self.workdir, self.place, progress, interrupt, began, until)
            Status(self.workdir, self.config.training.steps).update(outcome.state, outcome.step, outcome.message)
        return outcome

    def describe(self, progress: Progress) -> None:
        """Write vocabularies and manifest of a new run; of a resumed one, check the data and tell what else has changed."""
        import jax

        previous = _begun(self.workdir, self.config)
        devices = {"kind": jax.devices()[0].device_kind, "count": self.place.count, "processes": jax.process_count(), **self.place.about}
        manifest = Manifest.build(self.config, devices=devices, data=dict(self.task.data.fingerprints))
        if previous is not None and previous.data != manifest.data:
            changed = [split for split, digest in manifest.data.items() if previous.data.get(split) != digest]
            where = f"the data of workdir {self.workdir} has changed since it began"
            raise UserError(f"{where} (split {', '.join(changed)}); use another --workdir")
        if jax.process_index() == 0 and not (previous and self.task.saved(self.workdir)):
            self.task.save(self.workdir)  # a vocabulary that was lost is learned again: it is a function of the data
        if previous is None:
            if jax.process_index() == 0:
                manifest.write(self.workdir)  # last: a workdir with a manifest is complete
            return
        for change in previous.environment_changes(manifest):
            progress.note(f"note: not what this run began with: {change}")


def _begun(workdir: Path, config: ConfigDict) -> Manifest | None:
    """The manifest of an earlier start of this very run; None for a new one."""
    manifest = Manifest.read(workdir)
    if manifest is not None:
        manifest.check_config(config, workdir)
    return manifest


class _FailureRecorded:
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
