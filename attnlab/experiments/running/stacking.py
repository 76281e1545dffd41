"""Trials that train as one program: which can, and the process that trains them (see `attnlab.training.stacked`).

    python -m attnlab.experiments.running.stacking DIR additive-3f2a9c1b/seed0 additive-3f2a9c1b/seed1

Every trial keeps its own lock, folder and records, as if it were alone; one that another process is at is left out. What the process
prints goes to the log of the first trial; the others' logs name that one.
An error that ends the program is not yet any one trial's: all that were in it are "interrupted", to be trained one at a time.
Exit code 0: all done, now or before; 1: one failed or diverged, or an error ended all; 75: another process is at one of them;
78: code or data is not what the sweep was planned with; 128 + n: stopped by signal n.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnlab.errors import UserError, told
from attnlab.experiments.plan import Plan, Trial
from attnlab.experiments.running import unchanged
from attnlab.experiments.running.attempts import Attempt
from attnlab.experiments.running.slots import Slot
from attnlab.experiments.running.state import recorded
from attnlab.experiments.running.trial import HELD, failed, find, write_output_to, write_validation
from attnlab.progress import Progress
from attnlab.provenance import Changed
from attnlab.training.hyperparameters import signature
from attnlab.training.interrupt import Interrupt
from attnlab.training.manifest import Manifest
from attnlab.training.records import Held, RunLock, State, Status

if TYPE_CHECKING:
    from attnlab.training.loop import Outcome
    from attnlab.training.run import Prepared

MOST = 64  # trials in one program, unless told otherwise


def group(trials: Iterable[Trial], most: int = MOST) -> list[list[Trial]]:
    """The trials in groups that can train as one program, each at most `most` long; order is kept, in and between groups.

    Trials that fit are those that differ in nothing but `attnlab.training.hyperparameters`. Needs no jax.
    """
    alike: dict[str, list[Trial]] = {}
    for trial in trials:
        alike.setdefault(signature(trial.config), []).append(trial)
    return [found[begin : begin + most] for found in alike.values() for begin in range(0, len(found), most)]


def main(argv: Sequence[str] | None = None) -> int:
    """Train the trials that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m attnlab.experiments.running.stacking", description=__doc__)
    parser.add_argument("directory", type=Path, help="the sweep's folder")
    parser.add_argument("names", nargs="+", metavar="CANDIDATE/seedN", help="the trials, of one group")
    chosen = parser.parse_args(argv)
    try:
        return run(chosen.directory, chosen.names)
    except (UserError, OSError) as error:
        print(f"error: {told(error)}", file=sys.stderr)
        return 2


def run(directory: Path, names: Sequence[str], slot: Slot | None = None) -> int:
    """Train trials of the plan as one program, each from where it is.

    Returns:
      The exit code, see the top of this file.

    Raises:
      UserError: there is no such trial, or a folder cannot be used.
    """
    began = time.perf_counter()
    trials = [named(directory, name) for name in names]
    for trial in trials:
        trial.workdir(directory).mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as locks:
        free = [trial for trial in trials if _locked(trial, directory, locks)]
        wanted = [trial for trial in free if not recorded(trial, directory).settled]
        busy = HELD if len(free) < len(trials) else 0
        if not wanted:
            return busy
        write_output_to(wanted[0].workdir(directory) / "log.txt")
        for trial in wanted[1:]:
            with open(trial.workdir(directory) / "log.txt", "a", encoding="utf-8") as log:
                log.write(f"trained together with {wanted[0].name}: see the log there\n")
        for trial in wanted:
            unchanged.check_code(trial)
        return _trained(wanted, directory, slot, began) or busy


def named(directory: Path, name: str) -> Trial:
    """The trial called "additive-3f2a9c1b/seed0" in the plan of a sweep folder.

    Raises:
      UserError: a name of another form, no plan, no such trial.
    """
    candidate, _, seed = name.partition("/seed")
    if not seed.isdecimal():
        raise UserError(f"{name!r} is no trial: expected CANDIDATE/seedN")
    return find(directory, candidate, int(seed))


def _locked(trial: Trial, directory: Path, locks: contextlib.ExitStack) -> bool:
    """Take a trial's lock, if nobody holds it."""
    with contextlib.suppress(Held):
        locks.enter_context(RunLock(trial.workdir(directory)))
        return True
    return False


def _trained(trials: Sequence[Trial], directory: Path, slot: Slot | None, began: float) -> int:
    """Train locked trials, with a record of the attempt in each folder; the exit code."""
    plan = Plan.read(directory)
    assert plan is not None
    attempts = [Attempt.start(trial.workdir(directory), slot) for trial in trials]
    try:
        prepared, outcomes, code = fit(trials, directory, began)
    except Changed as error:
        for attempt, trial in zip(attempts, trials, strict=True):
            failed(error, attempt, trial, "interrupted")
        raise
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        state: State = "failed" if len(trials) == 1 else "interrupted"
        return max(failed(error, attempt, trial, state) for attempt, trial in zip(attempts, trials, strict=True))
    ends = zip(attempts, trials, prepared, outcomes, strict=True)
    return max(code, *[_end(*end, plan.select["metric"]) for end in ends])


def _end(attempt: Attempt, trial: Trial, prepared: Prepared, outcome: Outcome, metric: str) -> int:
    """The scores of one trial, if it is done, and its last records; the exit code as far as it goes by this trial."""
    try:
        Status(prepared.workdir, prepared.config.training.steps).update(outcome.state, outcome.step, outcome.message)
        if outcome.state == "done":
            write_validation(prepared, metric)
    except (Exception, SystemExit) as error:
        return failed(error, attempt, trial)
    attempt.end(outcome.state, outcome.step, outcome.message, outcome.seconds_to_first_step)
    return int(outcome.state == "diverged")


def fit(trials: Sequence[Trial], directory: Path, began: float) -> tuple[list[Prepared], list[Outcome], int]:
    """Train until the end or a signal; the runs, how they ended, and 128 + the signal's number if one stopped any, else 0."""
    from attnlab.training.run import start_jax

    start_jax()
    from attnlab.training.stacked import train

    with Interrupt() as interrupt:
        prepared = prepare(trials, directory, ("train", "valid"))
        settings = prepared[0].config.training
        with Progress(settings.steps, every=settings.log_every) as progress:
            for one, trial in zip(prepared, trials, strict=True):
                unchanged.check_data(trial, directory, one.task.data.fingerprints)
                one.describe(progress)
            for line in prepared[0].task.notes(prepared[0].batches):
                progress.note(line)
            configs, batches, folders = zip(*((one.config, one.batches, one.workdir) for one in prepared), strict=True)
            outcomes = train(configs, prepared[0].task, batches, folders, prepared[0].place, progress, interrupt, began)
    stopped = any(outcome.state == "interrupted" for outcome in outcomes)
    return prepared, outcomes, 128 + int(interrupt.signal or 0) if stopped else 0


def prepare(trials: Sequence[Trial], directory: Path, splits: Sequence[str]) -> list[Prepared]:
    """The trials' runs; the data is read once for all of them.

    Raises:
      UserError: anything wrong with a config, the devices or the data.
    """
    from attnlab import config as configs
    from attnlab.tasks import TASKS
    from attnlab.training.parallel import spread
    from attnlab.training.run import Prepared, check, check_scores

    wanted = [configs.prepare(configs.from_dict(trial.config)) for trial in trials]
    code = [unchanged.check_code(trial) for trial in trials]
    folders = [trial.workdir(directory) for trial in trials]
    first = wanted[0]
    kind = TASKS.resolve(first.task)
    check(kind, first)
    manifests = {folder: Manifest.read(folder) for folder in folders}
    begun = [folder for folder, manifest in manifests.items() if manifest is not None and kind.saved(folder)]
    for folder, manifest in manifests.items():
        if manifest is not None:
            manifest.check_vocabulary(folder)
    task = kind.load(first, begun[0] if begun else None, splits)
    check_scores(task)
    place = spread(len(trials), first.parallel.devices)
    batches = (task.batches(one.training.accumulate, one.seed) for one in wanted)
    return [Prepared(one, folder, task, own, place, used) for one, folder, own, used in zip(wanted, folders, batches, code, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
