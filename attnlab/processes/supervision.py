"""How several processes end together: process 0 hears how each has ended, decides on the cause, and
prints it in one line.

JAX ends the other processes too, but later and otherwise. After `kill -9` of one of two or three they
were aborted by SIGABRT with 18 to 47 lines of text: after 110 s (once, JAX 0.10), with
`heartbeat_timeout_seconds=5` after 0.4 to 15 s (five kills, JAX 0.10 and 0.12, on two busy cores); and so
short a time may also end a run of which one process has only stalled. Here a closed connection says at
once which process is gone.
"""

import dataclasses
import math
import pathlib
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import get_args

from attnlab.errors import UserError
from attnlab.processes.detection import Member
from attnlab.processes.meeting import Meeting, receive, send
from attnlab.processes.worker import Cause, End, Worker

GRACE = 2.0
"""Seconds after a process has failed in which another's end may turn out to be the reason."""
_ORDER = get_args(Cause)
_GONE = End("lost", 1, "is gone")
_AGAIN = "all have ended; the same command goes on from what is saved"


class Group:
    """This process's part of the group: a `Worker`, and the messages of the others.

    Args:
      member: this process.
      meeting: the connected group.
    """

    def __init__(self, member: Member, meeting: Meeting) -> None:
        self.member, self.meeting = member, meeting

    def run(self, work: Callable[[], int]) -> int:
        """Runs `work` in a forked process, waits until all processes of the group have ended, and
        returns the exit code, which is the same for all; process 0 raises a `UserError` of any
        process, and its own exceptions.

        Raises:
          UserError: a `UserError` of any process; raised in process 0.
          BaseException: any other exception of process 0 itself.
        """
        worker = Worker(work, self.member.index == 0)
        with worker.passing_signals():
            try:
                return self._decide(worker) if self.member.index == 0 else self._follow(worker)
            finally:
                worker.stop()
                for link in self.meeting.links.values():
                    link.close()

    def _next_end(self, worker: Worker, deadline: float = math.inf) -> tuple[int, End] | None:
        """Waits for the next end of a process that this one is connected to, or of its own worker
        (a lost connection counts); returns (index, `End`), or None once the `deadline` (of
        `time.monotonic`) has passed.
        """
        indices = {link: index for index, link in self.meeting.links.items() if not link.closed}
        while True:
            timeout = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
            readable = wait([*indices, *worker.sources], timeout)
            if not readable:
                return None
            if end := worker.hear():
                return self.member.index, end
            for link, index in indices.items():
                if link in readable:
                    message = receive(link)
                    if message is not None:
                        return index, End(**message)
                    link.close()
                    return index, _GONE

    # --- process 0 ---

    def _decide(self, worker: Worker) -> int:
        """In process 0: waits for ends of processes, decides which one is the cause, sends it to
        all others, kills its own worker, and prints or raises the error, if any; returns the exit
        code.
        """
        ends: dict[int, End] = {}
        deadline = math.inf
        while heard := self._next_end(worker, deadline):
            index, end = heard
            ends.setdefault(index, end)
            if end.cause in ("done", "lost", "killed") or (end.cause == "mistake" and index == 0):
                break
            deadline = min(deadline, time.monotonic() + GRACE)
        index, end = min(ends.items(), key=lambda pair: (_ORDER.index(pair[1].cause), pair[0]))
        for link in self.meeting.links.values():
            send(link, dataclasses.asdict(dataclasses.replace(end, details="", error=None)))
        worker.stop()
        return self._report_end(index, end)

    def _report_end(self, index: int, end: End) -> int:
        """In process 0: prints or raises the error for which all processes end, nothing if they are
        done; returns the exit code.
        """
        if end.cause == "done":
            return end.code
        if index == 0 and end.error is not None:
            raise end.error
        who = self._name(index)
        if end.cause == "mistake":
            raise UserError(f"{who}: {end.text}")
        if end.details:
            print(end.details.rstrip(), file=sys.stderr)
        _print_error(f"{who} {end.text}: {_AGAIN}")
        return end.code

    # --- the others ---

    def _follow(self, worker: Worker) -> int:
        """In every other process: sends process 0 the end of the own worker, waits for process 0 to
        announce the end of all, or to vanish (then process 1 kills its worker and prints an error),
        and returns the exit code.
        """
        while heard := self._next_end(worker):
            index, end = heard
            if index == self.member.index:
                message = dataclasses.asdict(dataclasses.replace(end, error=None))
                send(self.meeting.links[0], message)
                continue
            if end is _GONE and self.member.index == 1:  # the first process that is left says it
                worker.stop()
                _print_error(f"{self._name(0)} {_GONE.text}: {_AGAIN}")
            return end.code
        return _GONE.code

    def _name(self, index: int) -> str:
        return f"process {index} of {self.member.count} (host {self.meeting.hosts[index]})"


def _print_error(line: str) -> None:
    program = pathlib.Path(sys.argv[0]).name or "attnlab"
    print(f"{program}: error: {line}", file=sys.stderr, flush=True)
