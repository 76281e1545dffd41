"""Training trials of a sweep in this process: one, or several as one program (see
`attnlab.training.stacked`).

They train on "train" and "valid", and their validation scores are written down. The test split is
never opened here. Every trial has its own lock, folder and records, as if it were alone; one that
another process works on is left out. The output goes to the log of the first trial; the other logs
name it. If an error ends a program of several trials, all of them are "interrupted", to be trained
one at a time.

Before a trial is trained or scored it is checked that the user's code is that of the plan, and
that the data is that of the other trials. Both may be edited while a sweep runs, and any of its
processes may notice it first. Then all stop, no trial counts as failed, and the launcher ends with
one line. The same command continues once the change is undone or accepted.
"""

import contextlib
import dataclasses
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.run.output import shortened, write_output_to
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.state import is_left
from attnlab.progress import Progress
from attnlab.records import provenance
from attnlab.records.attempts import Attempt
from attnlab.records.files import write_atomic
from attnlab.records.locks import Held, RunLock
from attnlab.records.manifest import Manifest
from attnlab.records.measures import RECORDED, as_record, counted, declared
from attnlab.records.provenance import Changed, Code
from attnlab.records.stream import Scored, State, best_record, read_records
from attnlab.tasks.metrics import failures
from attnlab.training.pruning import prune
from attnlab.training.session import Interrupt, Outcome, Session

if TYPE_CHECKING:
    from attnlab.training.run import Run

CHANGED = os.EX_CONFIG
"""The exit code of a process that has seen a change of code or data."""
HELD = os.EX_TEMPFAIL
"""The exit code of a process that has found another one at its work."""
UNLOCKED = os.EX_PROTOCOL
"""That of one whose lock does not hold between machines."""


def run(directory: Path, trials: Sequence[Trial], slot: Slot | None = None) -> int:
    """Trains those of the trials that no other process works on, each from its last checkpoint, and
    writes the validation scores of those that are done; returns the exit code (0, 1, `HELD` or 128
    + a signal).

    Returns:
      0: all done, or waiting for the others of a search's round, now or before; 1: one failed or
      diverged; `HELD`: another process is at one of them; 128 + n: stopped by signal n, and saved.

    Raises:
      UserError: a folder cannot be used.
      Changed: code or data has changed since the sweep was planned; the trials are unchanged or
        interrupted.
    """
    began = time.perf_counter()
    for trial in trials:
        trial.workdir(directory).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        locks = [_locked(trial, directory, stack) for trial in trials]
        for lock in locks:
            if lock is not None:
                lock.prove()
        free = [trial for trial, lock in zip(trials, locks, strict=True) if lock is not None]
        wanted = [trial for trial in free if is_left(trial, directory)]
        busy = HELD if len(free) < len(trials) else 0
        if not wanted:
            return busy
        write_output_to(wanted[0].workdir(directory) / "log.txt")
        for trial in wanted[1:]:
            with open(trial.workdir(directory) / "log.txt", "a", encoding="utf-8") as log:
                log.write(f"trained together with {wanted[0].name}: see the log there\n")
        for trial in wanted:
            check_code(trial)
        return _trained(wanted, directory, slot, began) or busy


def _locked(trial: Trial, directory: Path, stack: contextlib.ExitStack) -> RunLock | None:
    """Takes a trial's lock, still to be proved, until `stack` closes, and returns it, or None if
    another process holds it.
    """
    with contextlib.suppress(Held):
        return stack.enter_context(RunLock(trial.workdir(directory), later=True))
    return None


def _trained(trials: Sequence[Trial], directory: Path, slot: Slot | None, began: float) -> int:
    """Trains trials that this process has locked, records the attempt and its end in each folder,
    and returns the exit code (1: one failed or diverged); `began` is the `perf_counter` at the
    start.
    """
    plan = Plan.read(directory)
    assert plan is not None
    use = {**(slot.use if slot else {}), **({"together": len(trials)} if len(trials) > 1 else {})}
    attempts = [Attempt.start(trial.workdir(directory), use) for trial in trials]
    try:
        runs, outcomes, code = fit(trials, attempts, directory, began)
    except Changed as error:
        for attempt in attempts:
            failed(error, attempt, "interrupted")
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # users' modules may call sys.exit
        state: State = "failed" if len(trials) == 1 else "interrupted"
        return max(failed(error, attempt, state) for attempt in attempts)
    ends = zip(trials, attempts, runs, outcomes, strict=True)
    return max(code, *[_end(*end, plan) for end in ends])


def _end(trial: Trial, attempt: Attempt, run: "Run", outcome: Outcome, plan: Plan) -> int:
    """Writes the validation scores of a trial if it is done, and the end of its attempt, then
    prunes its saved states as the plan says; returns its exit code: 1 if it diverged or this failed
    (130 after Ctrl-C), else 0.
    """
    try:
        if outcome.state == "done":
            write_validation(run, plan.select["metric"])
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        return failed(error, attempt)
    waiting = outcome.state == "interrupted" and outcome.step == trial.candidate.until
    message = "waiting for the other trials of its round" if waiting else outcome.message
    attempt.end(outcome.state, outcome.step, message, outcome.seconds_to_first_step)
    if outcome.state == "done" and plan.keep != "all":
        try:
            prune(run.workdir, plan.keep)
        except (UserError, OSError) as error:  # it is done all the same
            print(f"warning: not pruned: {error}", file=sys.stderr)
    return int(outcome.state == "diverged")


def fit(
    trials: Sequence[Trial], attempts: Sequence[Attempt], directory: Path, began: float
) -> "tuple[list[Run], list[Outcome], int]":
    """Trains the trials, one alone or several as one program, to the end, `Candidate.until` or a
    signal; returns the runs, their `Outcome`s, and 128 + the signal's number or 0; `began` is the
    `perf_counter` at the start.
    """
    from attnlab.training.run import start_jax

    start_jax()
    with Interrupt() as interrupt:
        runs = prepare(trials, directory)
        settings = runs[0].config.training
        item = runs[0].task.item
        with Progress(settings.steps, every=settings.log_every, item=item) as progress:
            for run, trial in zip(runs, trials, strict=True):
                check_data(trial, directory, run.task.data.fingerprints)
            until = trials[0].candidate.until if len(trials) == 1 else None
            session = Session(progress, interrupt, began, until, tuple(attempts))
            outcomes = _train_as_one_program(runs, session) if runs[1:] else [runs[0].fit(session)]
    stopped = any(outcome.state == "interrupted" for outcome in outcomes)
    code = 128 + interrupt.signal if stopped and interrupt.signal is not None else 0
    return runs, outcomes, code


def _train_as_one_program(runs: "Sequence[Run]", session: Session) -> list[Outcome]:
    """Writes or checks the manifest of each run, prints the notes of the first, trains the runs as
    one program and returns the `Outcome` of each.
    """
    from attnlab.training.stacked import train

    for run in runs:
        run.describe(session.progress)
    runs[0].announce(session.progress)
    return train(runs, session)


def prepare(trials: Sequence[Trial], directory: Path) -> "list[Run]":
    """Returns the runs of the trials, with data, parameters and optimizer ready to train; several
    trials share one task, whose data is read once.

    Raises:
      UserError: anything wrong with a config, the devices or the data.
    """
    from attnlab import config as configs
    from attnlab.tasks import TASKS
    from attnlab.training.devices import use_precision
    from attnlab.training.parallel import place_trials
    from attnlab.training.run import Run, check, check_begun, check_scores
    from attnlab.training.updates import Updates

    wanted = [configs.prepare(configs.from_dict(trial.config)) for trial in trials]
    # the imported code is the same as before and after the import
    code = [check_code(trial) for trial in trials]
    folders = [trial.workdir(directory) for trial in trials]
    first, splits = wanted[0], ("train", "valid")
    kind = TASKS.resolve(first.task)
    manifests = {folder: Manifest.read(folder) for folder in folders}
    if len(trials) == 1:
        begun = manifests[folders[0]]
        return [Run.prepare(kind, first, folders[0], splits, begun, code[0])]
    use_precision(first.training.precision)
    check(kind, first)
    complete = []
    for (folder, manifest), config, used in zip(manifests.items(), wanted, code, strict=True):
        if manifest is not None:
            check_begun(manifest, config, folder, used)
            complete += [folder] if kind.saved(folder) else []
    task = kind.load(first, complete[0] if complete else None, splits)
    check_scores(task)
    devices = place_trials(len(trials), first.parallel)
    runs = []
    for config, (folder, manifest), used in zip(wanted, manifests.items(), code, strict=True):
        batches = task.batches(config.training.accumulate, config.seed)
        updates = Updates.of(config)
        runs.append(Run(config, folder, task, batches, devices, updates, manifest, used))
    return runs


def failed(error: BaseException, attempt: Attempt, state: State = "failed") -> int:
    """Records that an attempt ended by an error (all of it on stderr, one line in the trial's
    records) with the trial in `state`, and returns the exit code: 130 after Ctrl-C, which always
    means "interrupted", else 1.

    The trial is then in `state`; after Ctrl-C it is "interrupted" in any case.
    """
    if isinstance(error, UserError):
        message = str(error)
        print(f"error: {message}", file=sys.stderr)
    else:
        message = shortened(f"{type(error).__name__}: {error}", attempt.workdir)
        traceback.print_exception(error)
    state = "interrupted" if isinstance(error, KeyboardInterrupt) else state
    with contextlib.suppress(UserError, OSError):  # if the disk is full, report the first error
        attempt.end(state, attempt.step, message)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def write_validation(run: "Run", metric: str) -> None:
    """Writes `valid.json`: the run's scores at its best step on the validation split and the counts
    behind them; computes `metric` now if training has not.

    They stand in the metric stream already; only a metric of free-running text is decoded for now,
    with the parameters of that step.

    Raises:
      UserError: the task has no such metric, or it is the user's and fails.
    """
    workdir = run.workdir
    by = run.config.checkpoint.by
    records = read_records(workdir / "metrics.jsonl", Scored)
    scores = best_record(records, by, declared(run.task)[by].better)
    if metric not in scores:
        params, step = run.updates.best_params(run.task, workdir)
        texts, _ = run.task.score(params, "valid")
        scores = {**scores, **texts, "step": step}
    if metric not in scores:
        words = f"select: the validation scores have no {metric!r}; they have {', '.join(scores)}"
        raise UserError(failures(scores) or words)
    counts = as_record(counted(run.task, "valid", scores))
    record = {"split": "valid", **scores, RECORDED: counts}
    write_atomic(workdir / "valid.json", json.dumps(record, indent=1) + "\n")


def check_code(trial: Trial) -> Code:
    """Returns the user's own code that a trial uses, as it is now; raises `Changed` if it is not
    the code of the plan; called before that code is imported, and after.

    The code of the plan counts, even if the trial began with other code.

    Raises:
      Changed: it is not that of the plan.
    """
    planned, code = trial.candidate.code, provenance.code(trial.candidate.config)
    before = code.digests if planned is None else planned
    names = {**before, **code.digests}
    if other := [name for name in names if before.get(name) != code.digests.get(name)]:
        files = ", ".join(
            code.modules[name].file if name in code.modules else f"{name} (gone)" for name in other
        )
        raise Changed(
            f"{trial.candidate.id} was planned with other code: {files}; put that back, or run the"
            f" same command with {provenance.FLAG}"
        )
    return dataclasses.replace(code, accept=planned is not None)


def check_data(trial: Trial, directory: Path, fingerprints: Mapping[str, str]) -> None:
    """Raises `Changed` unless the data that a trial has read (`fingerprints`: split to hash) is the
    same as that of the sweep's other trials with the same task and data settings.

    Args:
      trial: that has read it; the seed is no part of the data.
      directory: the sweep's folder.
      fingerprints: of the data, by split.

    Raises:
      Changed: a split is not.
    """
    for path in sorted((directory / "trials").glob("*/seed*/manifest.json")):
        manifest = None
        with contextlib.suppress(UserError):  # a damaged one is told when that trial is next used
            manifest = Manifest.read(path.parent)
        if manifest is None or any(
            manifest.config.get(key) != trial.config.get(key) for key in ("task", "data")
        ):
            continue
        manifest.check_data(fingerprints, path.parent)
        if {*fingerprints} <= {*manifest.read_data(path.parent)}:
            return
