"""From a plan to its report: trials, the choice on validation, the one look at the test split. Each stage starts from what is on disk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from attnlab.errors import UserError
from attnlab.experiments.plan import Plan
from attnlab.experiments.running import attempts
from attnlab.experiments.running.board import Board
from attnlab.experiments.running.jobs import Executor, Job, finals, training
from attnlab.experiments.running.selection import Choice, freeze, wanted
from attnlab.experiments.running.state import Seen, look
from attnlab.experiments.running.stop import Stop
from attnlab.training.records import Held, RunLock


@dataclasses.dataclass(frozen=True)
class Launcher:
    """One launcher at work on a sweep's folder, whose lock it holds.

    Attributes:
      directory: the sweep's folder.
      executor: where jobs run.
      board: who is told.
      stop: the signals that came.
      arrange: how trials to run are put together into jobs.
    """

    directory: Path
    executor: Executor
    board: Board
    stop: Stop
    arrange: Callable[[list[Job]], list[Job]] = list

    def train(self) -> list[str]:
        """Run all trials until they have settled, a search's until it is over; a line for each job that could not be run."""
        plan = read(self.directory)
        if plan.search is None:
            return self._run_trials()
        from attnlab.experiments.running.searching import advance

        searching, lines = True, list[str]()
        while searching and not lines and self.stop.signal is None:
            searching = advance(self.directory)
            lines = self._run_trials()
        return lines

    def finish(self) -> list[str]:
        """Freeze the choice, then evaluate the chosen trials on the test split; a line for each evaluation that failed.

        Raises:
          UserError: a trial has not settled.
        """
        left = [one.trial.name for one in course(self.directory) if not one.settled]
        if left:
            raise UserError(f"{len(left)} trials have not settled ({left[0]} is one), so nothing is chosen; the same command goes on")
        plan = read(self.directory)
        return self.executor.run(finals(plan, freeze(plan, self.directory), self.directory))

    def _run_trials(self) -> list[str]:
        plan = read(self.directory)
        self.board.plan = plan
        return self.executor.run(self.arrange(training(plan, Choice.read(self.directory), self.directory)))


def read(directory: Path) -> Plan:
    """The plan of a sweep's folder.

    Raises:
      UserError: there is none, or it is damaged.
    """
    plan = Plan.read(directory)
    if plan is None:
        raise UserError(f"{directory} holds no sweep (no plan.json in it); 'sweep FILE.py --dir={directory}' makes one")
    return plan


def retry_failed(directory: Path) -> int:
    """Open the failed trials again that may still matter; how many there are."""
    failed = [one for one in course(directory) if one.state == "failed"]
    for one in failed:
        attempts.reopen(one.trial.workdir(directory))
    return len(failed)


def course(directory: Path) -> list[Seen]:
    """The states of the trials that count: of a variant whose choice is frozen, only the chosen candidate's."""
    return [look(one, directory) for one in wanted(read(directory), Choice.read(directory))]


def lock(directory: Path) -> RunLock:
    """The lock of a sweep's folder.

    Raises:
      UserError: another launcher is at work there.
    """
    try:
        return RunLock(directory)
    except Held as error:
        raise UserError(
            f"--dir={directory}: another launcher is at work there ({error.holder}); 'status {directory}' shows how far it is"
        ) from None
