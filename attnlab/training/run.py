"""One run from its config to the end of training, for the `train` command and the trials of a
sweep. `Run` has each part of it, built once; whoever needs one takes it from there.

jax is imported by the functions, not by the module: the command line imports this for `--help` too.
"""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.config.tree import to_dict
from attnlab.errors import UserError, nearest
from attnlab.progress import Progress
from attnlab.records import provenance
from attnlab.records.attempts import Attempt
from attnlab.records.manifest import Lineage, Manifest, vocabulary_prints
from attnlab.records.measures import counted, declared
from attnlab.records.provenance import Changed, Code
from attnlab.records.sealed import check_test_split
from attnlab.records.stream import State
from attnlab.training import devices
from attnlab.training.parent import LaterBatches, copy_state, lineage_of
from attnlab.training.programs import start_jax as start_jax
from attnlab.training.session import Outcome, Session

if TYPE_CHECKING:
    import numpy as np

    from attnlab.data.batching import Batches
    from attnlab.tasks import AnyTask
    from attnlab.tasks.schemas import Settings
    from attnlab.training.parallel import Backend
    from attnlab.training.updates import Updates


def check(kind: "type[AnyTask]", config: "Settings") -> "Updates":
    """Checks all of a config that needs no data, for a class of tasks, and returns its `Updates`
    (optimizer, schedule, trained parameters); raises `UserError` for what is wrong.

    Raises:
      UserError: a measure that is declared wrongly, a checkpoint chosen by one that is not known
        while training, or what task, optimizer and schedule find wrong.
    """
    from attnlab.training.optimizers import check_own
    from attnlab.training.updates import Updates

    declared(kind)
    for key, name in _deciding_measures(config).items():
        if name not in kind.evaluated:
            raise UserError(f"config.{key}={name!r}; {nearest(name, kind.evaluated)}")
    if config.training.stop.measure and not config.training.evaluate_every:
        raise UserError(
            "config.training.stop.measure is looked at in evaluations; set training.evaluate_every"
        )
    kind.check(config)
    updates = Updates.of(config)
    check_own(config.optimizer, config.schedule, steps=config.training.steps)
    return updates


def check_scores(task: "AnyTask") -> None:
    """Raises `UserError` unless the data of a task gives the scores that choose the checkpoint and
    end the training, and its validation split can be counted.
    """
    choices = [name for name in task.evaluated if name in task.measures]
    for key, name in _deciding_measures(task.config).items():
        if name not in task.measures:
            raise UserError(
                f"config.{key}={name!r}: this data has no such score; {nearest(name, choices)}"
            )
    counted(task, "valid")


def _deciding_measures(config: "Settings") -> dict[str, str]:
    """Returns the measures that training goes by, by the setting that names them."""
    by, stop = config.checkpoint.by, config.training.stop.measure
    return {"checkpoint.by": by, "training.stop.measure": stop or by}


def check_begun(begun: Manifest, config: "Settings", workdir: Path, code: Code | None) -> None:
    """Raises `UserError` unless the run begun in `workdir`, with the manifest `begun`, has this
    config (`parallel` and `training.metrics` apart) and its vocabulary, was not pruned and, once it
    has trained, has the user's `code` (None: as it is now).
    """
    begun.check_config(config, workdir, ignore=("parallel", "training.metrics"))
    begun.check_states(workdir)
    if provenance.saved_step(workdir) is not None:
        provenance.check(begun.own_code, code or provenance.code(config), workdir)
    begun.check_vocabulary(workdir)


class Unread:
    """The batches of a run that reads no data."""

    note = ""

    def __call__(self, step: int) -> "dict[str, np.ndarray]":
        """There is none."""
        raise AssertionError("a run without data has no batches")


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that is ready to begin, or to continue from its folder.

    Attributes:
      config: complete and checked.
      workdir: where it is kept.
      task: with the data of the splits it was asked to read, and the system.
      batches: the rows of this process for each step.
      devices: where the state lies and the step runs.
      updates: the optimizer, its schedule, and what is trained.
      begun: the manifest of the run in `workdir`; None for a new one.
      code: the user's code that the config names, as it was when it was imported; None to look for
        it now.
      lineage: of a run that goes on from another one.
    """

    config: "Settings"
    workdir: Path
    task: "AnyTask"
    batches: "Batches"
    devices: "Backend"
    updates: "Updates"
    begun: Manifest | None = None
    code: Code | None = None
    lineage: Lineage | None = None

    @classmethod
    def prepare(
        cls,
        kind: "type[AnyTask]",
        config: "Settings",
        workdir: Path,
        splits: Sequence[str],
        begun: Manifest | None = None,
        code: Code | None = None,
    ) -> "Run":
        """Checks the config, sets JAX's precision, reads `splits` of the data by the task class
        `kind` and returns the `Run` of `workdir`; writes nothing; raises `UserError` for faults.

        Args:
          kind: the class of the task.
          config: of the run.
          workdir: its vocabularies are taken if a run has begun there.
          splits: of the data; what is not among them is never opened. () where nothing is trained.
          begun, code: see `Run`.

        Raises:
          UserError: anything wrong with config, devices or data, or `workdir` holds a run of
            another config or another vocabulary.
        """
        from attnlab.training.parallel import backend

        if "test" in splits:
            check_test_split(workdir)
        if begun is not None:
            check_begun(begun, config, workdir, code)
        updates, place = check(kind, config), backend(config.parallel)
        devices.use_precision(config.training.precision)
        if place.layout is not None and place.layout.divides:
            updates = dataclasses.replace(updates, layout=place.layout)
        lineage = lineage_of(config, code) if begun is None else begun.parent
        source = Path(lineage["workdir"]) if begun is None and lineage else workdir
        if "test" in splits and source is not workdir:
            check_test_split(source)
        learned = source if (begun or lineage) and kind.saved(source) else None
        task = kind.load(config, learned, splits)
        if source is not workdir and (parent := Manifest.read(source)):
            parent.check_same_data(config, task.data.fingerprints, source)
        if splits:
            check_scores(task)
        updates.check(task)
        if place.layout is not None:
            place.layout.check_rules(updates.state_like(task))
        if begun is None and lineage is None:
            task.check_pretrained()
        rows = place.count * config.training.accumulate
        batches: Batches = task.batches(rows) if splits else Unread()
        if lineage and splits:
            batches = LaterBatches(batches, lineage["data_from"])
        return cls(config, workdir, task, batches, place, updates, begun, code, lineage)

    def fit(self, session: Session) -> Outcome:
        """Trains until the last step, an early stop, a divergence, or a signal or limit of the
        session, and returns the `Outcome`; prints the plan, writes the run's files and, in process
        0 unless the session has attempts, the end to `events.jsonl`. The caller holds the lock of
        `workdir`.

        Raises:
          UserError: data that has changed since the run began, a checkpoint that cannot be used, a
            full disk.
        """
        import jax

        from attnlab.training.loop import train

        first = jax.process_index() == 0
        if first:
            self.describe(session.progress)
            self.announce(session.progress)
            if self.lineage is not None:
                copy_state(self.lineage, self.workdir)
        self.compare()
        if not first or session.attempts:
            return train(self, session)
        attempt = Attempt(self.workdir)
        with _record_failure(attempt):
            outcome = train(self, dataclasses.replace(session, attempts=(attempt,)))
        attempt.end(outcome.state, outcome.step, outcome.message, outcome.seconds_to_first_step)
        return outcome

    def compare(self) -> None:
        """Raises `UserError` unless this process has the config, the user's code, the data and the
        vocabularies (with a divided state also the pretrained weights and the manifest) of process
        0; with one process it does nothing.

        Raises:
          UserError: this one has others.
        """
        import jax

        from attnlab.training.parallel import agree_with_0, message_from_0

        if jax.process_count() == 1:
            return
        local = {
            "config": to_dict(self.config),
            "code": (self.code or provenance.code(self.config)).digests,
            "data": dict(self.task.data.fingerprints),
            "vocabulary": _learned_prints(self.task),
        }
        if self.updates.layout is not None:  # all read and write there
            message_from_0(None)  # the manifest is written
            local["weights"] = self.task.check_pretrained()
            manifest = Manifest.read(self.workdir)
            local["--workdir (with parallel.fsdp all share one)"] = repr(manifest)
        equal = agree_with_0([json.dumps(part, sort_keys=True) for part in local.values()])
        if names := ", ".join(name for name, same in zip(local, equal, strict=True) if not same):
            raise UserError(
                f"not the {names} of process 0: every host needs the same files; is an older run"
                f" in {self.workdir} here?"
            )

    def announce(self, progress: Progress) -> None:
        """Prints what a person should know before training: folder, number of parameters, memory of
        the state, devices, an unused accelerator, the run that it goes on from, notes on data and
        on what is trained.
        """
        from attnlab.training import sizes
        from attnlab.training.trained import LORA

        state = self.updates.state_like(self.task)
        takes = ", ".join(f"{name} {size}" for name, size in sizes.state_sizes(state).items())
        number = f"{sizes.count(state.params):,} parameters"
        if added := sizes.count(state.params.get(LORA, ())):
            number += f" ({added:,} of lora, which are merged into the others when it is used)"
        progress.note(f"run: {self.workdir}, {number}; in memory: {takes}")
        progress.note(devices.line(self.devices, self.config.training.precision))
        if (unused := devices.unused()) is not None:
            progress.warn(unused)
        if self.lineage is not None:
            first, step = self.lineage["data_from"], self.lineage["step"]
            plan = f"; its data begins at step {first} with its own plan" if first else ""
            plan += "" if self.lineage["joined"] else "; no score is compared with one of before"
            progress.note(f"goes on from step {step} of {self.lineage['workdir']}{plan}")
        for line in [*self.task.notes(self.batches), *self.updates.notes(self.task)]:
            progress.note(line)

    def describe(self, progress: Progress) -> None:
        """Writes vocabularies, the user's code and manifest of a new run; of a resumed one, checks
        that the data is unchanged, prints what else has changed and records changed code; raises
        `Changed` for other data or if someone else has trained it meanwhile.

        Raises:
          Changed: data has changed since the run began, or someone else has trained it since
            `begun` was read.
        """
        code, previous = self.code or provenance.code(self.config), self.begun
        if Manifest.read(self.workdir) != previous:
            raise Changed(
                f"another process, or an earlier loop, has trained {self.workdir} meanwhile; give the"
                " command, or 'begin', again: it goes on from there"
            )
        weights = self.task.check_pretrained()
        if previous is not None and self.task.beginning is not None:
            weights = self.task.beginning.in_saved_form(weights, previous.data)
        manifest = Manifest.build(
            self.config,
            devices=devices.describe(self.devices, self.config.training.precision),
            data={**self.task.data.fingerprints, **weights},
            own_code=code.record(),
        )
        if previous is not None and (new := manifest.data.keys() - previous.data.keys()):
            # it has begun without data, see `import`: this is what it begins with
            added = {key: manifest.data[key] for key in sorted(new)}
            previous = dataclasses.replace(previous, data={**previous.data, **added})
            previous.write(self.workdir)
        changes = self._resumed(previous, manifest, code, progress) if previous is not None else []
        if not (previous and self.task.saved(self.workdir)):
            self._save_vocabulary(previous)
        if previous is None:
            for line in code.keep(self.workdir):
                progress.note(f"note: {line}")
            prints = vocabulary_prints(self.workdir)
            manifest = dataclasses.replace(manifest, vocabulary=prints, parent=self.lineage)
            manifest.write(self.workdir)  # last: a workdir with a manifest is complete
        elif (
            changes and (step := provenance.saved_step(self.workdir)) != self.config.training.steps
        ):  # else nothing is trained with it
            earlier_code = previous.own_code if step is not None else None
            if earlier_code is None:  # nothing of the code before is in this run
                code.keep(self.workdir)
                record = code.record()
            else:
                record = provenance.accept(earlier_code, code, self.workdir, step)
            dataclasses.replace(previous, own_code=record).write(self.workdir)

    def _resumed(
        self, previous: Manifest, manifest: Manifest, code: Code, progress: Progress
    ) -> list[provenance.Change]:
        """Checks that the data of a resumed run is unchanged, prints what else has changed, and
        returns the changes of the user's code.
        """
        previous.check_data(manifest.data, self.workdir)
        if provenance.saved_step(self.workdir) is not None:
            for line in provenance.notes(previous.own_code, code, self.workdir):
                progress.note(f"note: {line}")
        for change in previous.environment_changes(manifest):
            progress.note(f"note: not what this run began with: {change}")
        return provenance.changes(previous.own_code, code)

    def _save_vocabulary(self, previous: Manifest | None) -> None:
        """Writes the vocabularies to `workdir`; for a run begun before, whose vocabulary was lost
        and learned again, raises `Changed` unless it equals the lost one.

        Raises:
          Changed: what was learned again is not what was lost.
        """
        recorded = None if previous is None else previous.vocabulary
        if recorded not in (None, _learned_prints(self.task)):
            raise Changed(
                f"{self.workdir} has lost its vocabulary, and the data gives another one now; put"
                " back a good copy"
            )
        self.task.save(self.workdir)


def _learned_prints(task: "AnyTask") -> dict[str, str]:
    """Returns the fingerprints of the vocabularies that a task saves with a run, by file name."""
    with tempfile.TemporaryDirectory(prefix="attnlab-") as folder:
        task.save(Path(folder))
        return vocabulary_prints(folder)


@contextlib.contextmanager
def _record_failure(attempt: Attempt) -> Iterator[None]:
    """A context that records the state "failed" ("interrupted" after Ctrl-C) with the error's text
    as the end of an attempt, if its block raises; the error goes on.
    """
    try:
        yield
    except BaseException as error:
        state: State = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        with contextlib.suppress(UserError, OSError):  # if the disk is full, report the first error
            attempt.end(state, attempt.step, f"{type(error).__name__}: {error}")
        raise
