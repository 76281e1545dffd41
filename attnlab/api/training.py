"""Training from Python: `run = attnlab.train(config, on_step=...)`, and `attnlab.begin(config).steps()`
for loops of one's own; and what the commands `train` and `continue` share with it. Each can go on
with what another has begun. Importing this loads no jax.

A sweep from Python, `attnlab.sweep("experiments/quickstart.py")`, runs what the command runs, in a
process of its own, and gives the table and the verdict as records.
"""

import contextlib
import dataclasses
import html
import json
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ml_collections import ConfigDict

from attnlab import config as configs
from attnlab import processes
from attnlab.config.schema import Node
from attnlab.errors import UserError, reason
from attnlab.experiments.define import default_directory, overridden
from attnlab.progress import Progress
from attnlab.records import provenance
from attnlab.records.files import check_folder
from attnlab.records.locks import RunLock
from attnlab.records.manifest import Manifest
from attnlab.records.sealed import check_no_trial
from attnlab.records.tracking import FILE, TRACKERS, Tracking
from attnlab.tasks import TASKS
from attnlab.tasks.metrics import Metric, path_of
from attnlab.tasks.schemas import Settings
from attnlab.training.run import Run, start_jax
from attnlab.training.session import Interrupt, OnStep, Outcome, Session

if TYPE_CHECKING:
    from attnlab.api import trained


Folder = str | os.PathLike[str]


def default_workdir(path: str, config: Settings) -> str:
    """Returns the default folder of a run, `runs/<config file>-<system>-<hash of the config without
    parallel>`, as text; creates nothing.
    """
    lasting = configs.to_dict(config)
    del lasting["parallel"]  # which may change on resume
    return f"runs/{configs.config_name(path.partition(':')[0])}-{config.system.name}-{configs.config_hash(lasting)}"


def existing_run(workdir: Path) -> Manifest | None:
    """Returns the manifest of the run in a workdir, or None if the folder is absent, empty, or has
    only files of a run killed at its very start; raises `UserError` for a folder with anything
    else.

    Raises:
      UserError: the manifest is damaged, or the folder is none, or it holds something that is not a
        run.
    """
    check_folder("--workdir", workdir)
    manifest = Manifest.read(workdir)
    if manifest is None and workdir.is_dir():
        own_files = {".lock", "vocabulary", provenance.FOLDER, "events.jsonl", ".manifest.json.tmp"}
        own_files |= {FILE, *(f".{name}.lock" for name in TRACKERS)}
        others = sorted(set(os.listdir(workdir)) - own_files)
        if others:
            present = "a sweep" if "plan.json" in others else others[0]
            raise UserError(
                f"--workdir={workdir} is not empty and holds no run ({present} is there); name"
                " a new or empty folder"
            )
    return manifest


def _note_flops(run: Run, progress: Progress) -> None:
    """Starts a thread that counts the FLOPs of a training step, with batches of the shapes of the
    last batch, and shows the number as a note of `progress`.
    """
    from attnlab.analysis.work import flops
    from attnlab.pages.tables import scaled
    from attnlab.training.journal import format_shapes, shapes_of

    batch = dict(run.batches(progress.step - 1))
    shapes = format_shapes(shapes_of(batch))

    def count() -> None:
        number = flops(run.updates.step(run.task), run.updates.state_like(run.task), batch)
        progress.note(f"FLOPs of a step with batches of {shapes}: {scaled(number)}")

    threading.Thread(target=count, name="flops").start()


@dataclasses.dataclass(frozen=True, repr=False)
class Training:
    """A run that is ready to begin, or to go on from its folder.

    Attributes:
      run: what trains; `run.workdir`, `run.config`, `run.task`.
      tracked: the trackers that look on; None in all processes but the first.
    """

    run: Run
    tracked: Tracking | None

    @classmethod
    def of(
        cls,
        config: str | Mapping[str, Any],
        overrides: Sequence[str],
        workdir: Folder | None,
        splits: Sequence[str],
        track: str | None = None,
        accept: bool = False,
    ) -> "Training":
        """Returns a `Training` of the run of a config, new or resumed from `workdir`, with the data
        of `splits`; writes nothing, and raises `UserError` for anything wrong with folder, config,
        data or trackers.

        Args:
          config: as "FILE.py:ARGUMENT" or as the settings that such a file returns; of a run that is
            there, settings that are newer than it stay as they were.
          overrides: "a.b=value" each.
          workdir: its folder; None for `default_workdir`.
          splits: of the data.
          track, accept: see `Tracking.choose` and `provenance.code`.

        Raises:
          UserError: anything wrong with folder, config, devices, data or trackers.
        """
        file = None
        if isinstance(config, str):
            file = configs.find_file(config.partition(":")[0], "config file")
            settings = configs.load(config, overrides)
        else:
            if not isinstance(config, (Mapping, ConfigDict, Node)):
                raise UserError(f"config: {config!r} is neither FILE.py:ARGUMENT nor settings")
            settings = configs.prepare(configs.from_dict(configs.to_dict(config)), overrides)
        workdir = Path(workdir or default_workdir(str(file or settings.task), settings))
        first = processes.index() == 0  # the others write nothing there
        if first:
            check_no_trial(workdir)
        begun = existing_run(workdir) if first else Manifest.read(workdir)
        tracked = Tracking.choose(workdir, track) if first else None
        if begun is not None:  # an older run goes on as it was begun
            settings = configs.as_stored(settings, begun.config, overrides)
        code = provenance.code(settings, accept=accept, config_file=file)
        start_jax()
        kind = TASKS.resolve(settings.task)
        return cls(Run.prepare(kind, settings, workdir, splits, begun, code), tracked)

    @contextlib.contextmanager
    def trained(
        self, began: float, on_step: OnStep | None = None, until: int | None = None
    ) -> Iterator[Outcome]:
        """A context that first trains to the end, to step `until` or to a signal, calling
        `on_step(step, numbers)` after each step and each evaluation (if that fails: saves and
        raises `UserError`), and then gives its block the `Outcome`, how and at which step training
        ended; trackers follow until the block ends.

        Args:
          began: when the command did, of `time.perf_counter`.
          on_step: see `Session`, as `until`; if it raises, the run is saved and left.

        Raises:
          UserError: see `Run.fit`; `on_step` has raised an `Exception`; what else it raises goes on.
        """
        run, settings = self.run, self.run.config.training
        raised: list[tuple[int, BaseException]] = []

        def call(step: int, values: Mapping[str, float]) -> None:
            try:
                if on_step is not None and not raised:
                    on_step(step, dict(values))
            except BaseException as error:  # the user's own, which may also want to leave
                raised.append((step, error))
                interrupt.signal = interrupt.signal or signal.SIGINT

        with contextlib.ExitStack() as readers:
            with (
                RunLock(run.workdir) if self.tracked is not None else contextlib.nullcontext(),
                Interrupt() as interrupt,
                Progress(settings.steps, every=settings.log_every, item=run.task.item) as progress,
            ):
                if self.tracked is not None:
                    readers.enter_context(self.tracked.beside(run.workdir))
                    progress.when_long = lambda: _note_flops(run, progress)
                outcome = run.fit(Session(progress, interrupt, began, until, (), call))
            for step, error in raised:
                if not isinstance(error, Exception):
                    raise error
                raise UserError(
                    f"on_step failed at step {step}: {reason(error)}; the run is saved, and the same"
                    " call goes on from there"
                ) from error
            if self.tracked is not None and outcome.state == "done" and outcome.message:
                print(outcome.message, file=sys.stderr)
            yield outcome

    def steps(self) -> Iterator[tuple[int, Mapping[str, float]]]:
        """Trains the run from where it stands and yields (step, its numbers by name) after each
        step, and again for an evaluation after it, (step, {"valid/...": score}); no step is
        recorded while the body of the loop is at work, and leaving the loop saves the run. With a
        `training.lag` that is not 0 the steps that are under way then are trained and recorded, and
        not yielded.

        Raises:
          UserError: as `train`, also where the run cannot be saved as the loop is left (by `close`
            of the iterator; Python only prints what is raised as a `for` drops it).
        """
        recorded: queue.Queue[tuple[int, Mapping[str, float]] | BaseException | None]
        recorded, turns = queue.Queue(), queue.Queue[bool]()

        def on_step(step: int, values: Mapping[str, float]) -> None:
            recorded.put((step, values))
            if not turns.get():
                raise GeneratorExit

        def work() -> None:
            try:
                with self.trained(time.perf_counter(), on_step) as outcome:
                    self.check_done(outcome)
                    recorded.put(None)
            except BaseException as error:
                recorded.put(None if isinstance(error, GeneratorExit) else error)

        # A loop that is never left must not hold up the end of the program.
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            while numbers := recorded.get():
                if isinstance(numbers, BaseException):
                    raise numbers
                yield numbers
                turns.put(True)
        finally:
            turns.put(False)
            thread.join()
            while not recorded.empty():
                if isinstance(ending := recorded.get(), BaseException):
                    raise ending

    def check_done(self, outcome: Outcome) -> None:
        """Raises `UserError` if training has diverged or was interrupted."""
        if outcome.state != "done":
            where = f"{self.run.workdir} {outcome.state} at step {outcome.step}"
            raise UserError(f"{where}: {outcome.message}")


def begin(
    config: Folder | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    metrics: Metric | Sequence[Metric] = (),
    workdir: Folder | None = None,
    track: str | None = None,
) -> Training:
    """Returns a `Training` of a config, new or resumed from its folder, with the data of the splits
    "train" and "valid"; trains and writes nothing yet.

    Args:
      config: "configs/translation.py:rnnsearch", or the nested settings that a config file returns.
      overrides: {"training.steps": 500, ...}.
      metrics: functions for `training.metrics`, or one, in place of those of the config; see
        `attnlab.tasks.metrics`.
      workdir: the folder; by default below `runs/`, named by the config.
      track: as the flag `--track`.

    Raises:
      UserError: as the command `train`.
    """
    changes = overridden(overrides)
    if paths := tuple(map(path_of, metrics if isinstance(metrics, list | tuple) else [metrics])):
        if any(change.startswith("training.metrics=") for change in changes):
            raise UserError(
                "metrics: training.metrics is in overrides too; name all in one of them"
            )
        changes += overridden({"training.metrics": paths})
    config = os.fspath(config) if isinstance(config, os.PathLike) else config
    return Training.of(config, changes, workdir, ("train", "valid"), track)


def train(
    config: Folder | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    on_step: OnStep | None = None,
    **options: Any,
) -> "trained.Run":
    """Trains a config to the end, or on from what its folder holds, calls `on_step(step, numbers)`
    after each step and each evaluation, and returns the trained `Run` (see `load`); raises
    `UserError` if training diverges or is interrupted.

    Args:
      config, overrides, options: see `begin`.
      on_step: `on_step(step, metrics)` gets the host's numbers of each step after they are recorded,
        and those of an evaluation as {"valid/loss": ...}; it cannot change the run. If it raises,
        the run is saved, and the same call goes on from there; it is not told the steps that a
        `training.lag` has under way then.

    Raises:
      UserError: as the command `train`; training has diverged or was interrupted.
    """
    from attnlab.api import trained

    training = begin(config, overrides, **options)
    with training.trained(time.perf_counter(), on_step) as outcome:
        training.check_done(outcome)
        return trained.load(training.run.workdir)


_COMMAND = "import sys; from attnlab.commands import main; sys.exit(main())"


@dataclasses.dataclass(frozen=True)
class Sweep:
    """A sweep that has run.

    Attributes:
      directory: its folder.
      verdict: on the claim, with its "sentence"; None without a claim.
      rows: a record for each row of the table: "name", "mean", "interval", "values" by seed,
        "difference" to the baseline, costs; `pandas.DataFrame(sweep.rows)` makes a frame of them.
      trials: a record for each trial, with its "scores" by split.
    """

    directory: Path
    verdict: dict[str, Any] | None
    rows: list[dict[str, Any]] = dataclasses.field(repr=False)
    trials: list[dict[str, Any]] = dataclasses.field(repr=False)

    def _repr_html_(self) -> str:
        """What a notebook shows: the page of the report."""
        page = html.escape((self.directory / "report.html").read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" width="100%" height="600" style="border:0"></iframe>'


def sweep(
    experiment: Folder,
    overrides: Mapping[str, Any] | None = None,
    *,
    directory: Folder | None = None,
    flags: Sequence[str] | str = (),
) -> Sweep:
    """Runs the command `sweep` on an experiment file in another process, or resumes it, and returns
    its report, a `Sweep` (folder, verdict, table rows, trials); prints the command's messages on
    `sys.stderr`, and raises `UserError` if it fails or makes no report.

    Args:
      experiment: "experiments/quickstart.py", with ":ARGUMENT" if it takes one.
      overrides: {"training.steps": 100, ...}, for all variants.
      directory: of the sweep; by default below `runs/`, as the command has it.
      flags: others of the command, as "--seeds=5"; as one text they are read as a shell does.

    Raises:
      UserError: the line that the command ends with, also where trials have failed; a flag as
        `--dry-run`, with which no report is made.
    """
    folder = Path(directory or default_directory(str(experiment)))
    command = [sys.executable, "-c", _COMMAND, "sweep", str(experiment), f"--dir={folder}"]
    flags = shlex.split(flags) if isinstance(flags, str) else flags
    command += [*(f"--config.{change}" for change in overridden(overrides)), *flags]
    line, out = "", tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by the next line
    with out, subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr or ():
                print(line, end="", file=sys.stderr, flush=True)
        except BaseException:  # a person's interruption: the same call goes on later
            process.terminate()
            raise
        if not (code := process.wait()):
            out.seek(0)
            line = out.read()
    path = folder / "report.json"
    if code or {"--dry-run", "--help", "-h"} & set(flags) or not path.exists():
        lines = [f"exit code {code}", *line.strip().splitlines()]
        line = re.sub(r"^(-c[\w ]*: )?error: ", "", lines[-1])
        raise UserError(line if code else f"no report was written; the command: {line}")
    report = json.loads(path.read_text(encoding="utf-8"))
    return Sweep(folder, report["verdict"], report["rows"], report["trials"])
