"""Workers that something else places, on a cluster: the launcher follows the records in the sweep's
folder, and asks for workers while there is work and nobody does it. What places them knows nothing
of trials.
"""

import abc
import time
from pathlib import Path
from typing import Any

from attnlab.experiments.run.board import Board
from attnlab.experiments.run.jobs import Due, Job
from attnlab.experiments.run.live import DEFAULTS, Stop, WorkOptions
from attnlab.experiments.run.training import check_code

POLL = 3.0  # seconds between two looks at the folder and at the workers
SUBMISSIONS = 3  # of workers that end before the work does


class Placed(abc.ABC):
    """Runs jobs through such workers.

    Args:
      directory: the sweep's folder, which must have the same path everywhere.
      request: the resources; `workers` of it is how many there are at a time.
      board: receives the events.
      stop: a remembered signal ends following.
      options: of the workers.

    Attributes:
      logs: where the output of the workers is, for a person.
    """

    logs: str

    def __init__(
        self,
        directory: Path,
        request: Any,
        board: Board,
        stop: Stop,
        options: WorkOptions = DEFAULTS,
    ) -> None:
        """Stores the sweep's folder, the request, board, stop and workers' options, and prepares
        what places the workers.
        """
        self._directory, self._request, self._options = directory.resolve(), request, options
        self._board, self._stop = board, stop
        self.prepare()

    @abc.abstractmethod
    def prepare(self) -> None:
        """Prepares what submits workers; called once, by the constructor."""

    @abc.abstractmethod
    def workers(self) -> int:
        """Returns how many workers of this sweep are queued or running on the cluster.

        Raises:
          UserError: nobody knows, or one has ended with such an error.
        """

    @abc.abstractmethod
    def submit(self, count: int) -> None:
        """Submits `count` more workers to the cluster.

        Raises:
          UserError: they are refused.
        """

    @abc.abstractmethod
    def leave(self) -> None:
        """Does what is necessary when the launcher was told to stop: ends the workers, or says that
        they go on.
        """

    def run(self, due: Due) -> list[str]:
        """Has cluster workers do the jobs that `due()`, asked every `POLL` seconds, lists, and
        submits workers again whenever all have ended; returns [] once no job is left, or at a
        signal, after `leave()`; returns one line if they have ended `SUBMISSIONS` times with jobs
        left.

        Returns:
          A line if workers ended before the jobs did.

        Raises:
          UserError: see `workers` and `submit`; or the user's code is not what the sweep was
            planned with.
        """
        left: dict[str, Job] = {}
        submissions = 0
        while self._stop.signal is None:
            before, left = left, {job.name: job for job in due()}
            for job in before.values():
                if job.name not in left:
                    self._board.ended(job)
            if not left:
                return []
            most = min(self._request.workers, len(left))
            missing = most - self.workers()
            if submissions == 0 or missing == most:
                if submissions == SUBMISSIONS:
                    others = f"{next(iter(left))} and {len(left) - 1} more"
                    return [f"{others}: no worker stays; their logs lie in {self.logs}"]
                for job in left.values():
                    check_code(job.trials[0])  # no worker would stay
                if missing > 0:
                    self.submit(missing)
                submissions += 1
            self._board.tick()
            time.sleep(POLL)
        self.leave()
        return []
