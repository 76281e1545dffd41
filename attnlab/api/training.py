"""Training from Python: `run = attnlab.train(config, on_step=...)`, and `attnlab.begin(config).steps()`
for loops of one's own. The folder is that of the command `train`: each can go on with the other's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attnlab import config as configs
from attnlab.api.trained import Folder, Run, load
from attnlab.config.tree import config_hash, to_dict
from attnlab.errors import UserError
from attnlab.experiments.define import flattened, text
from attnlab.progress import Progress
from attnlab.records.files import check_folder
from attnlab.records.locks import RunLock
from attnlab.records.manifest import Manifest
from attnlab.records.sealed import check_no_trial
from attnlab.tasks import TASKS
from attnlab.tasks.schemas import Settings
from attnlab.training import run as training
from attnlab.training.session import Interrupt, OnStep, Outcome, Session


class Left(Exception):
    """The loop over `Training.steps` has been left."""


@dataclasses.dataclass(frozen=True, repr=False)
class Training:
    """A run that is ready to begin, or to go on from its folder.

    Attributes:
      run: what trains; `run.config`, `run.task`.
    """

    run: training.Run

    @property
    def workdir(self) -> Path:
        """The folder of the run."""
        return self.run.workdir

    def __repr__(self) -> str:
        config = self.run.config
        return f"Training({str(self.workdir)!r}, steps={config.training.steps})"

    def fit(self, on_step: OnStep | None = None) -> Outcome:
        """Train to the end, or until Ctrl-C, which saves.

        Raises:
          UserError: what `train` would print; `on_step` has failed, after the run was saved.
        """
        settings, main = self.run.config.training, threading.current_thread()
        interrupt, progress = Interrupt(), Progress(settings.steps, every=settings.log_every)
        handles_signals = main is threading.main_thread()
        with (
            RunLock(self.workdir),
            interrupt if handles_signals else contextlib.nullcontext(),
            progress,
        ):
            return self.run.fit(Session(progress, interrupt, time.perf_counter(), on_step=on_step))

    def steps(self) -> Iterator[tuple[int, Mapping[str, float]]]:
        """The steps from here on, each with its numbers, as `on_step` gets them; training waits
        while a loop is at work. Leaving the loop saves the run.

        Raises:
          UserError: as `fit`.
        """
        numbers: queue.Queue[tuple[int, Mapping[str, float]] | None] = queue.Queue()
        turns: queue.Queue[bool] = queue.Queue()
        raised: list[BaseException] = []

        def on_step(step: int, values: Mapping[str, float]) -> None:
            numbers.put((step, values))
            if not turns.get():
                raise Left

        def work() -> None:
            try:
                self.fit(on_step)
            except BaseException as error:
                raised.append(error)
            numbers.put(None)

        thread = threading.Thread(target=work, name="train")
        thread.start()
        goes_on = False
        try:
            while (recorded := numbers.get()) is not None:
                yield recorded
                turns.put(True)
            goes_on = True
        finally:
            if not goes_on:
                turns.put(False)
            thread.join()
        if raised:
            raise raised[0]


def begin(
    config: str | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    workdir: Folder | None = None,
) -> Training:
    """A run of a config, ready to train; nothing is written yet. It reads the splits "train" and
    "valid".

    Args:
      config: "configs/translation.py:rnnsearch", or the nested settings that a config file returns.
      overrides: {"training.steps": 500, ...}.
      workdir: the folder; by default below `runs/`, named by the config. A run that has begun there
        goes on.

    Raises:
      UserError: as the command `train`.
    """
    changes = [
        f"{key}={text(value)}" for key, value in flattened(overrides or {}, "overrides").items()
    ]
    if isinstance(config, str):
        settings: Settings = configs.load(config, changes)
        name = Path(config.partition(":")[0]).stem
    else:
        settings = configs.prepare(configs.from_dict(to_dict(config)), changes)
        name = settings.task
    folder = Path(workdir or f"runs/{name}-{settings.system.name}-{config_hash(settings)}")
    check_folder("workdir", folder)
    check_no_trial(folder)
    begun = Manifest.read(folder)
    if begun is not None:
        settings = configs.as_stored(settings, begun.config, changes)
    elif folder.is_dir() and any(path.name != ".lock" for path in folder.iterdir()):
        raise UserError(f"workdir={folder} is not empty and holds no run; name a new folder")
    kind = TASKS.resolve(settings.task)
    return Training(training.Run.prepare(kind, settings, folder, ("train", "valid"), begun))


def train(
    config: str | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    on_step: OnStep | None = None,
    workdir: Folder | None = None,
) -> Run:
    """Train a config to the end, or on from what its folder holds; the trained run, see `load`.

    Args:
      config, overrides, workdir: see `begin`.
      on_step: `on_step(step, metrics)` gets the host's numbers of each step after they are recorded,
        and those of an evaluation as {"valid/loss": ...}; it cannot change the run. If it raises,
        the run is saved, and the same call goes on from there.

    Raises:
      UserError: as the command `train`; training has diverged or was interrupted.
    """
    begun = begin(config, overrides, workdir=workdir)
    outcome = begun.fit(on_step)
    if outcome.state != "done":
        raise UserError(
            f"{begun.workdir} {outcome.state} at step {outcome.step}: {outcome.message}"
        )
    return load(begun.workdir)
