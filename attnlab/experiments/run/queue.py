"""The local queue: every slot runs one job at a time, in a process of its own (`live.py`). Nothing
here imports jax.

A job whose process dies is tried again, twice. One that may have been killed for lack of memory
waits until all others have ended, and is tried once alone. A process that does not leave when asked
is killed after a grace period.
"""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Protocol

from attnlab.errors import UserError
from attnlab.experiments.run.jobs import Job
from attnlab.experiments.run.live import GRACE, Live, Perform, died
from attnlab.experiments.run.output import last_line, shortened
from attnlab.experiments.run.process import perform
from attnlab.experiments.run.slots import Slot
from attnlab.experiments.run.state import recorded
from attnlab.experiments.run.stop import Stop
from attnlab.experiments.run.training import HELD
from attnlab.experiments.run.unchanged import CHANGED
from attnlab.records import attempts
from attnlab.records.provenance import Changed
from attnlab.records.stream import Held, RunLock, holder, is_held

FURTHER = 2  # attempts at a job whose process died without a record
TICK = 0.5  # seconds between two checks of signals and updates of the board
LOOK = 1.0  # seconds between two reads of requests about running trials
HELD_FOR = 2.0  # seconds until a job that another process works on is tried again


class Board(Protocol):
    """Receives the events of a sweep."""

    def started(self, job: Job, slot: Slot) -> None:
        """A process has begun."""

    def ended(self, job: Job) -> None:
        """A job has ended; the records of its trials say how."""

    def note(self, text: str) -> None:
        """A line for a person."""

    def tick(self) -> None:
        """Time has passed."""


class Queue:
    """Runs jobs in slots, in their order.

    Args:
      directory: the sweep's folder.
      slots: where to run.
      board: receives the events.
      stop: an entered `Stop`; a remembered signal is passed on to all processes and ends the run.

    Attributes:
      patience: seconds to wait for jobs that other processes work on.
      work: the function for the process of a job; it must be importable.
      grace: seconds in which a process that is asked to leave must do so; then it is killed.
      limit: seconds that a trial may take, all its attempts together (trials in one program: as
        many times that; so too the seeds of an evaluation); None for any. One that takes longer is
        stopped and has failed.
    """

    patience = float("inf")
    work: Perform = staticmethod(perform)
    grace = GRACE
    limit: float | None = None

    def __init__(self, directory: Path, slots: Sequence[Slot], board: Board, stop: Stop) -> None:
        self._directory, self._board, self._stop = directory, board, stop
        self._free = list(slots)
        self._live: list[Live] = []
        self._waiting: deque[Job] = deque()
        self._alone: deque[Job] = deque()
        self._held: list[tuple[float, Job, bool]] = []
        self._announced: set[str] = set()
        self._deaths: Counter[str] = Counter()
        self._failures: list[str] = []
        self._changed, self._looked = "", 0.0

    def run(self, jobs: Sequence[Job]) -> list[str]:
        """Run all jobs to their end, or until a signal.

        Returns:
          A line for each job that failed without a record.

        Raises:
          Changed: code or data has changed since the sweep was planned; no job was begun after
            that.
        """
        self._waiting, self._failures, worked = deque(jobs), [], time.monotonic()
        try:
            while self._stop.signal is None and (
                self._waiting or self._live or self._held or self._alone
            ):
                self._try_again()
                self._fill()
                if self._live:
                    worked = time.monotonic()
                elif time.monotonic() - worked > self.patience:
                    break
                self._wait()
                self._look()
        finally:
            self._finish()
        if self._changed:
            raise Changed(self._changed)
        return self._failures

    def _fill(self) -> None:
        """Start waiting jobs while a slot is free; at the end, one by one, those that need all the
        memory.
        """
        while (
            self._free and self._stop.signal is None and not any(live.alone for live in self._live)
        ):
            if not self._waiting and (self._live or not self._alone):
                return
            alone = not self._waiting
            job = (self._waiting or self._alone).popleft()
            left = job.left(self._directory)
            if not left:  # another process has done it
                self._board.ended(job)
            elif any(is_held(trial.workdir(self._directory)) for trial in left):
                self._hold(job, alone)
            else:
                slot = self._free.pop(0)
                before = max(
                    attempts.spent(attempts.read(trial.workdir(self._directory))) for trial in left
                )
                self._live.append(live := Live(self.work, self._directory, job, slot, self.grace))
                live.open, live.alone, live.before = (
                    left,
                    alone,
                    before * len(left) if job.kind == "train" else 0.0,
                )
                self._board.started(job, slot)

    def _hold(self, job: Job, alone: bool = False) -> None:
        """Try a job again later if another process works on it: one that outlives its launcher for
        a moment, or another worker.
        """
        if job.name not in self._announced:
            held = [trial for trial in job.trials if is_held(trial.workdir(self._directory))]
            who = f" ({holder(held[0].workdir(self._directory))})" if held else ""
            self._board.note(f"{job.name} is held by another process{who}; waiting for it")
            self._announced.add(job.name)
        self._held.append((time.monotonic() + HELD_FOR, job, alone))

    def _try_again(self) -> None:
        """Put held jobs back at the head of the queue."""
        now = time.monotonic()
        due = [(job, alone) for when, job, alone in self._held if when <= now]
        self._held = [entry for entry in self._held if entry[0] > now]
        for job, alone in reversed(due):
            (self._alone if alone else self._waiting).appendleft(job)

    def _wait(self) -> None:
        """Wait a moment, or until a process ends; kill those that should have left; then look at
        those that have ended.
        """
        signs = [sign for live in self._live for sign in live.signs]
        if signs:
            wait(signs, TICK)
        else:
            time.sleep(min(TICK, self.patience))
        for live in self._live:
            if live.late():
                self._board.note(
                    f"{live.job.name}: has not left within {self.grace:g} s of being asked; killed"
                )
                live.kill()
        for live, code in [(live, live.exit_code()) for live in self._live]:
            if code is not None:
                self._live.remove(live)
                self._free = sorted([*self._free, live.slot], key=lambda slot: slot.number)
                self._ended(live, code)
        self._board.tick()

    def _look(self) -> None:
        """Stop the trials that a user wants to stop, or that take too long."""
        if time.monotonic() - self._looked < LOOK:
            return
        self._looked = time.monotonic()
        for live in [live for live in self._live if not live.asked]:
            left = live.job.left(self._directory)
            if live.job.kind == "train" and any(
                recorded(trial, self._directory).word == "stopped"
                for trial in live.open
                if trial not in left
            ):
                live.ask()
            if self.limit is not None and left and live.seconds > self.limit * len(live.open):
                live.why = f"stopped after {self.limit / 60:g} minutes (--trial-timeout)"
                live.ask()

    def _ended(self, live: Live, code: int) -> None:
        """Handle a job whose process has ended."""
        job = live.job
        left = job.left(self._directory)
        if not left:
            del self._deaths[job.name]  # a round of a search may bring it back
        if left and live.why:
            self._fail(job, live.why)
        elif self._stop.signal is not None or not left:
            self._board.ended(job)
        elif code == HELD:
            self._hold(job, live.alone)
        elif code == CHANGED:
            self._changed = last_line(left[0].workdir(self._directory) / "log.txt").removeprefix(
                "error: "
            )
            self._board.note(f"{job.name}: {self._changed}; nothing more is begun")
            for jobs in (self._waiting, self._held, self._alone):
                jobs.clear()
        elif job.kind == "final" and code in (1, 2):
            self._fail(job, "")
        elif (
            job.kind == "train"
            and len(job.trials) > 1
            and (code in (1, 2) or self._deaths[job.name] == FURTHER)
        ):
            self._part(job)
        elif live.asked or (
            job.kind == "train" and code in (128 + signal.SIGTERM, 128 + signal.SIGHUP)
        ):  # requested, not a crash
            self._board.note(
                f"{job.name}: was asked to leave and has {'left' if code < 0 else 'saved'}; going"
                " on with it"
            )
            self._waiting.append(job)
        elif live.out_of_memory(code):
            self._spare(live, died(code))
        elif self._deaths[job.name] < FURTHER:
            self._deaths[job.name] += 1
            self._board.note(f"{job.name}: its process {died(code)}; trying again")
            self._waiting.appendleft(job)
        else:
            self._fail(job, f"its process {died(code)}, {FURTHER + 1} times")

    def _part(self, job: Job) -> None:
        """Continue the trials of a program of several one at a time."""
        self._board.note(f"{job.name}: could not be trained together; going on with one at a time")
        self._waiting.extendleft(
            Job("train", (trial,)) for trial in reversed(job.left(self._directory))
        )

    def _spare(self, live: Live, ending: str) -> None:
        """Handle a job that may have been killed for lack of memory: try it once more, alone."""
        if live.job.kind == "train" and len(live.job.trials) > 1:
            self._part(live.job)  # each alone takes less
        elif live.alone:
            self._fail(
                live.job,
                f"its process {ending}, perhaps for lack of memory, also with no other trial"
                " beside it",
            )
        else:
            self._board.note(
                f"{live.job.name}: its process {ending}, perhaps for lack of memory; trying again when"
                " no other runs"
            )
            self._alone.append(live.job)

    def _fail(self, job: Job, why: str) -> None:
        """Give a job up, with a record in each of its trials, or a line for the launcher."""
        first = (job.left(self._directory) or job.trials)[0]
        word = shortened(
            last_line(first.workdir(self._directory) / "log.txt"), first.workdir(self._directory)
        )
        message = "; ".join(part for part in (why, word) if part)
        if job.kind == "final":
            self._failures.append(f"{job.name}: {message}")
        for trial in job.left(self._directory) if job.kind == "train" else []:
            try:
                with RunLock(trial.workdir(self._directory)):
                    attempts.give_up(trial.workdir(self._directory), message)
            except Held:  # another process works on it, and will report
                continue
            except (
                UserError,
                OSError,
            ) as error:  # a full disk, for example: without a record it would be begun again and again
                self._failures.append(f"{job.name}: {message}; {error}")
        self._board.ended(job)

    def _finish(self) -> None:
        """Ask the processes that live to save and leave, and wait for them; a second signal
        kills them.
        """
        killed = False
        while self._live:
            for live in self._live:
                live.ask()
                if len(self._stop.signals) > 1 and not killed:
                    live.kill()
            killed = len(self._stop.signals) > 1
            self._wait()
