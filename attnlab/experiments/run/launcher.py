"""A whole sweep, once it is planned: trials, the choice on validation, the one look at the test
split; on this machine or on a cluster. Each stage starts from what is on disk.
"""

import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan
from attnlab.experiments.run import ray, slurm
from attnlab.experiments.run.board import Board, failures
from attnlab.experiments.run.jobs import WHOLE, Executor, Job, Part, finals, named, trainings
from attnlab.experiments.run.live import DEFAULTS, Stop, WorkOptions
from attnlab.experiments.run.selection import Choice, blocking, freeze, wanted
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.state import STOPPED, Seen, look
from attnlab.experiments.run.worker import Worker
from attnlab.records import attempts, locks
from attnlab.records.locks import Held, RunLock


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Options of running a sweep.

    Attributes:
      slots: of this machine; () on a cluster.
      cluster: the resources on SLURM or Ray; None for this machine.
      stack: whether trials that differ only in seed or numbers train as one program: "on", "off",
        or "auto" (if trials have GPUs).
      retry_failed: run trials again that have failed.
      accept_failed: choose without trials that have failed.
      work: of its workers.
      final: choose, and read the test split, at the end.
    """

    slots: Sequence[Slot] = ()
    cluster: slurm.Request | ray.Request | None = None
    stack: str = "auto"
    retry_failed: bool = False
    accept_failed: bool = False
    work: WorkOptions = DEFAULTS
    final: bool = True


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a sweep ended.

    Attributes:
      signal: that stopped it; None if it finished.
      wrong: a line for each trial that failed or diverged, and for each job that could not be run.
    """

    signal: int | None
    wrong: tuple[str, ...]


def run_sweep(directory: Path, options: SweepOptions) -> Ended:
    """Runs the rest of a planned sweep, whose lock the caller holds: reopens failed trials if
    asked, trains, and with `final` chooses and evaluates on the test split; returns `Ended`, the
    signal that stopped it and a line for each failure.
    """
    options.work.part.check(Plan.of_sweep(directory))
    if options.retry_failed:
        count = retry_failed(directory, options.work.part)
        print(f"{count} failed trials are run again", file=sys.stderr)
    with Stop() as stop, Board(Plan.of_sweep(directory), directory, len(options.slots)) as board:
        executor = _executor(directory, options, board, stop)
        part = options.work.part
        launcher = Launcher(directory, executor, board, stop, part, options.accept_failed)
        lines = launcher.train()
        if stop.signal is None and not lines and options.final:
            lines = launcher.finish()
    wrong = failures(Plan.of_sweep(directory), directory)
    return Ended(stop.signal, (*wrong, *lines))


def _executor(directory: Path, options: SweepOptions, board: Board, stop: Stop) -> Executor:
    """Returns the executor of a sweep's jobs: that of the cluster if one is requested, else a
    worker in this process.
    """
    if options.cluster is not None:
        return options.cluster.executor(directory, board, stop, options.work)
    together = trains_together(directory, options)
    return Worker(directory, options.slots, board, stop, options.work, together)


def trains_together(directory: Path, options: SweepOptions) -> bool:
    """Returns whether several trials may train as one program: with `stack` "on", or "auto" and
    GPUs, but never in a search that prunes.
    """
    search = Plan.of_sweep(directory).search
    # trials of a round stop at steps of their own
    prunes = search is not None and search["pruner"] is not None
    gpus = any("CUDA_VISIBLE_DEVICES" in slot.environment for slot in options.slots)
    return not prunes and (options.stack == "on" or (options.stack == "auto" and gpus))


@dataclasses.dataclass(frozen=True)
class Launcher:
    """One launcher at work on a sweep's folder, whose lock it holds.

    Attributes:
      directory: the sweep's folder.
      executor: where jobs run.
      board: the display.
      stop: the signals that came.
      part: of the trials that are to run.
      accept_failed: make the choice although candidates have failed trials.
    """

    directory: Path
    executor: Executor
    board: Board
    stop: Stop
    part: Part = WHOLE
    accept_failed: bool = False

    def train(self) -> list[str]:
        """Runs all trials of its part of the plan until they have settled, or a signal comes;
        advances a search round by round until it is over; returns a line for each job that could
        not run.
        """
        searching, lines = True, list[str]()
        while searching and not lines and self.stop.signal is None:
            searching = self._advance()
            jobs = self._due() if searching else []
            lines = self.executor.run(self._due)
            # without jobs the round may wait for other processes
            searching = searching and (bool(jobs) or not self._left_out())
        return lines

    def _advance(self) -> bool:
        """Advances the search of the plan to its next round and returns whether it goes on, always
        False if the plan has no search.
        """
        if Plan.of_sweep(self.directory).search is None:
            return False
        from attnlab.experiments.run.searching import advance

        return advance(self.directory)

    def finish(self) -> list[str]:
        """Freezes the choice, then evaluates the chosen trials on the test split; returns a line
        for each failed evaluation, or one on failed trials that prevent a choice; raises
        `UserError` if a trial has not settled; only prints a note if trials are left out.

        If a candidate has a failed trial, nothing is frozen or read, and the line says so, unless
        that is accepted. Nothing is frozen while trials are left out either.

        Raises:
          UserError: a trial has not settled.
        """
        if out := self._left_out():
            why = "nothing is chosen while trials are left out by --only or --skip"
            self.board.note(f"{why}: {len(out)} have not settled, {out[0]} is one")
            return []
        left = [seen.trial.name for seen in course(self.directory) if not seen.settled]
        if left:
            raise UserError(
                f"{len(left)} trials have not settled ({left[0]} is one), so nothing is chosen; the"
                " same command goes on"
            )
        plan = Plan.of_sweep(self.directory)
        failed = [] if self.accept_failed else blocking(plan, self.directory)
        if failed:
            return [_refusal(failed)]
        choice = freeze(plan, self.directory)
        return self.executor.run(lambda: finals(plan, choice, self.directory))

    def _due(self) -> list[Job]:
        """Reads the plan again, shows it on the board, and returns the training jobs of this
        launcher's part.
        """
        self.board.plan = plan = Plan.of_sweep(self.directory)
        return trainings(plan, Choice.read(self.directory), self.directory, self.part)

    def _left_out(self) -> list[str]:
        """Returns the names of the trials that have not settled but are outside this launcher's
        part (`--only`, `--skip`).
        """
        left = [seen.trial for seen in course(self.directory) if not seen.settled]
        return [trial.name for trial in left if not self.part.takes(trial)]


def _refusal(failed: Sequence[Seen]) -> str:
    """Returns the message that nothing is chosen because trials have failed, with the two flags by
    which one can continue.
    """
    first, several = failed[0], len(failed) > 1
    have, them = ("have", "them") if several else ("has", "it")
    return (
        f"nothing is chosen and the test split stays closed, because {len(failed)}"
        f" trial{'s' * several} that could be chosen {have} failed ({first.trial.name}:"
        f" {first.message}{', ...' * several}): --retry-failed runs {them} again, --accept-failed"
        f" chooses without {them}"
    )


def retry_failed(directory: Path, part: Part = WHOLE) -> int:
    """Reopens the failed trials of a part, except those that a frozen choice excludes, so that they
    run again; returns how many.
    """
    failed = [seen.trial for seen in course(directory) if seen.state == "failed"]
    retried = [trial for trial in failed if part.takes(trial)]
    for trial in retried:
        attempts.reopen(trial.workdir(directory))
    return len(retried)


def stop_trial(directory: Path, name: str, reason: str) -> Seen:
    """Records that a trial, named "CANDIDATE/seedN", running or not begun, is stopped for good,
    with the reason; returns its state before as a `Seen`; raises `UserError` if it has settled.

    Only the reason is written. The queue that runs the trial, on any machine, reads it and asks the
    process to leave; no queue begins the trial.

    Raises:
      UserError: no such trial, or it has settled.
    """
    trial, reason = named(directory, name), " ".join(reason.split())
    seen = look(trial, directory)
    if seen.settled:
        raise UserError(
            f"{name} is {seen.word} already, at step {seen.step}: there is nothing to stop"
        )
    trial.workdir(directory).mkdir(parents=True, exist_ok=True)
    attempts.stop(trial.workdir(directory), f"{STOPPED}: {reason}" if reason else STOPPED)
    return seen


def take_back(directory: Path, name: str) -> None:
    """Reopens a trial, named "CANDIDATE/seedN", that was stopped by request, so that it runs again;
    raises `UserError` if it was not, or if the choice of its variant is frozen.

    Raises:
      UserError: no such trial, it was not stopped, or the choice of its variant is frozen.
    """
    trial = named(directory, name)
    if (word := look(trial, directory).word) != "stopped":
        raise UserError(f"{name} is {word}: it was not stopped by request")
    choice = Choice.read(directory)
    if choice is not None and choice.candidate(trial.candidate.variant) is not None:
        raise UserError(f"{name}: the choice of its variant is frozen, so it cannot run again")
    attempts.reopen(trial.workdir(directory))


def course(directory: Path) -> list[Seen]:
    """Returns the states of all trials that count: of a variant whose choice is frozen, only the
    chosen candidate's.
    """
    trials = wanted(Plan.of_sweep(directory), Choice.read(directory))
    return [look(trial, directory) for trial in trials]


def lock(directory: Path) -> RunLock:
    """Returns the launcher's lock of a sweep's folder, taken; raises `UserError` if another process
    holds it, after a short wait if that is a worker that only tests whether locks hold between
    machines.

    Raises:
      UserError: another launcher is at work there.
    """
    until = time.monotonic() + locks.ANSWER + 2.0
    while True:
        try:
            return RunLock(directory)
        except Held as error:
            if not locks.is_proving(directory) or time.monotonic() >= until:
                raise UserError(
                    f"--dir={directory}: another launcher is at work there ({error.holder});"
                    f" 'status {directory}' shows how far it is"
                ) from None
        time.sleep(0.1)
