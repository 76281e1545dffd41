"""How several processes end together: process 0 hears how each has ended, decides on the cause, and
prints it in one line.
"""

from __future__ import annotations

import dataclasses
import pathlib
import queue
import sys
import threading
import time
from collections.abc import Callable

from attnlab.errors import UserError
from attnlab.processes.detection import Member
from attnlab.processes.meeting import Link, Meeting
from attnlab.processes.worker import End, Worker

GRACE = 2.0
"""Seconds after a process has failed in which another's end may turn out to be the reason."""
_ORDER = (
    "done",
    "lost",
    "killed",
    "mistake",
    "failure",
    "abort",
)  # the order in which causes count if several processes have ended
_AGAIN = "all have ended; the same command goes on from what is saved"


class Group:
    """This process's part of the group: a `Worker`, and the messages of the others.

    Args:
      member: this process.
      meeting: the connected group.
    """

    def __init__(self, member: Member, meeting: Meeting) -> None:
        self.member, self.meeting = member, meeting
        self._events: queue.SimpleQueue[tuple[int, End | None]] = queue.SimpleQueue()

    def run(self, work: Callable[[], int]) -> int:
        """Do `work` in a forked process and wait until all have ended; the exit code is the same
        for all.

        Raises:
          UserError: a `UserError` of any process; raised in process 0.
          BaseException: any other exception of process 0 itself.
        """
        worker = Worker(
            work, self.member.index == 0, lambda end: self._events.put((self.member.index, end))
        )
        with worker.signalled():
            for index, link in self.meeting.links.items():
                threading.Thread(target=self._listen, args=(index, link), daemon=True).start()
            try:
                return self._decide(worker) if self.member.index == 0 else self._follow(worker)
            finally:
                worker.stop()
                for link in self.meeting.links.values():
                    link.close()

    def _listen(self, index: int, link: Link) -> None:
        """Receive messages of another process until it is gone."""
        while (message := link.receive()) is not None:
            self._events.put((index, End(**message)))
        self._events.put((index, None))

    # --- process 0 ---

    def _decide(self, worker: Worker) -> int:
        """Wait for the first end that counts; tell all."""
        ends: dict[int, End] = {}
        deadline: float | None = None
        while deadline is None or time.monotonic() < deadline:
            try:
                index, end = self._events.get(
                    timeout=None if deadline is None else max(0.0, deadline - time.monotonic())
                )
            except queue.Empty:
                break
            end = end or End("lost", 1, "is gone")
            ends.setdefault(index, end)
            if end.cause in ("done", "lost", "killed") or (end.cause == "mistake" and index == 0):
                break
            deadline = deadline or time.monotonic() + GRACE
        index, end = min(ends.items(), key=lambda pair: (_ORDER.index(pair[1].cause), pair[0]))
        for link in self.meeting.links.values():
            link.send(dataclasses.asdict(dataclasses.replace(end, details="", error=None)))
        worker.stop()
        return self._report_end(index, end)

    def _report_end(self, index: int, end: End) -> int:
        """Print why all end, if there is something to print; the exit code."""
        if end.cause == "done":
            return end.code
        if index == 0 and end.error is not None:
            raise end.error
        who = self._name(index)
        if end.cause == "mistake":
            raise UserError(f"{who}: {end.text}")
        if end.details:
            print(end.details.rstrip(), file=sys.stderr)
        _say(f"{who} {end.text}: {_AGAIN}")
        return end.code

    # --- the others ---

    def _follow(self, worker: Worker) -> int:
        """Tell process 0 how the work here ended, and end when it says so."""
        while True:
            index, end = self._events.get()
            if index == self.member.index and end is not None:
                self.meeting.links[0].send(dataclasses.asdict(dataclasses.replace(end, error=None)))
            elif end is not None:
                return end.code
            else:
                worker.stop()
                if self.member.index == 1:  # one line, printed by the first process that is left
                    _say(f"{self._name(0)} is gone: {_AGAIN}")
                return 1

    def _name(self, index: int) -> str:
        return f"process {index} of {self.member.count} (host {self.meeting.hosts[index]})"


def _say(line: str) -> None:
    print(
        f"{pathlib.Path(sys.argv[0]).name or 'attnlab'}: error: {line}", file=sys.stderr, flush=True
    )
