"""The local queue: every slot runs one job at a time, in a process of its own.

Processes are forked from a server (`multiprocessing`'s) that has imported jax once and started nothing, so that a trial begins
without the seconds that imports take. A process lives no longer than its launcher, and belongs to a process group of its own, so
that Ctrl-C on a terminal reaches the launcher alone, which passes it on. Nothing here imports jax.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from attnlab.errors import UserError
from attnlab.experiments.plan import Trial
from attnlab.experiments.running import attempts
from attnlab.experiments.running.jobs import Job, perform
from attnlab.experiments.running.slots import Slot
from attnlab.experiments.running.stop import Stop
from attnlab.experiments.running.trial import HELD
from attnlab.experiments.running.unchanged import CHANGED
from attnlab.provenance import Changed
from attnlab.training.records import RunLock, is_held

FURTHER = 2  # attempts at a job whose process died without a word
TICK = 0.5  # seconds between two looks at signals and at the board
HELD_FOR = 2.0  # seconds until a job that another process holds is tried again
PRELOAD = (
    "attnlab.experiments.running.jobs",
    "attnlab.training.loop",
    "attnlab.training.run",
    "attnlab.tasks.translation",
    "attnlab.tasks.classification",
    "attnlab.tasks.language_modelling",
    "orbax.checkpoint",
)
SHELTERED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What a terminal or a scheduler may send to every process of a job: it must not end the server, whose processes would be lost with it."""

Perform = Callable[[Path, Job, Slot], int]


class Board(Protocol):
    """Who is told what happens."""

    def started(self, job: Job, slot: Slot) -> None:
        """A process has begun."""

    def ended(self, job: Job) -> None:
        """A job has come to its end; the records of its trials say how."""

    def note(self, text: str) -> None:
        """A line for a person."""

    def tick(self) -> None:
        """Time has passed."""


class _Live(NamedTuple):
    job: Job
    slot: Slot
    process: Any


class Queue:
    """Runs jobs in slots, in their order.

    Args:
      directory: the sweep's folder.
      slots: where to run.
      board: who is told.
      stop: entered; a remembered signal is passed on to all processes and ends the run.

    Attributes:
      patience: seconds to wait for jobs that only other processes hold.
      watch: says of a running trial why it is to be stopped for good; "" to let it go on.
      work: done in the process of a job; a function that can be imported.
    """

    patience = float("inf")
    watch: Callable[[Trial], str] | None = None
    work: Perform = staticmethod(perform)

    def __init__(self, directory: Path, slots: Sequence[Slot], board: Board, stop: Stop) -> None:
        self._directory, self._board, self._stop = directory, board, stop
        self._free = list(slots)
        self._live: list[_Live] = []
        self._waiting: deque[Job] = deque()
        self._held: list[tuple[float, Job]] = []
        self._told: set[str] = set()
        self._deaths: Counter[str] = Counter()
        self._failures: list[str] = []
        self._changed = ""

    def run(self, jobs: Sequence[Job]) -> list[str]:
        """Run all jobs to their end, or until a signal.

        Returns:
          A line for each job that failed and left no record of it.

        Raises:
          Changed: a process has seen that code or data is not what the sweep was planned with; nothing was begun after that.
        """
        self._waiting, self._failures, worked = deque(jobs), [], time.monotonic()
        try:
            while self._stop.signal is None and (self._waiting or self._live or self._held):
                self._try_again()
                self._fill()
                if self._live:
                    worked = time.monotonic()
                elif time.monotonic() - worked > self.patience:
                    break
                self._wait()
                self._prune()
        finally:
            self._finish()
        if self._changed:
            raise Changed(self._changed)
        return self._failures

    def _fill(self) -> None:
        """Start waiting jobs while there is a free slot."""
        while self._free and self._waiting and self._stop.signal is None:
            job = self._waiting.popleft()
            left = job.left(self._directory)
            if not left:  # another process has seen to it
                self._board.ended(job)
            elif any(is_held(trial.workdir(self._directory)) for trial in left):
                self._hold(job)
            else:
                slot = self._free.pop(0)
                self._live.append(_Live(job, slot, _started(self.work, self._directory, job, slot)))
                self._board.started(job, slot)

    def _hold(self, job: Job) -> None:
        """Come back to a job that another process is at: one that outlives its launcher for a moment, or another worker's."""
        if job.name not in self._told:
            self._board.note(f"{job.name} is held by another process; waiting for it")
            self._told.add(job.name)
        self._held.append((time.monotonic() + HELD_FOR, job))

    def _try_again(self) -> None:
        """Jobs that were held for a while are at the head of the line again."""
        due = [job for when, job in self._held if when <= time.monotonic()]
        self._held = [(when, job) for when, job in self._held if job not in due]
        self._waiting.extendleft(reversed(due))

    def _wait(self) -> None:
        """Wait a moment, or until a process ends; then look at those that have ended."""
        sentinels = [live.process.sentinel for live in self._live]
        if sentinels:
            wait(sentinels, TICK)
        else:
            time.sleep(min(TICK, self.patience))
        for live in [one for one in self._live if one.process.exitcode is not None]:
            self._live.remove(live)
            self._free = sorted([*self._free, live.slot], key=lambda slot: slot.number)
            self._ended(live.job, live.process.exitcode)
        self._board.tick()

    def _prune(self) -> None:
        """Stop the trials that `watch` has seen enough of."""
        for live in self._live if self.watch is not None else []:
            trial = live.job.trials[0]
            reason = "" if self.watch is None or live.job.kind == "final" else self.watch(trial)
            if reason:
                attempts.stop(trial.workdir(self._directory), reason)
                _send(live, signal.SIGTERM)

    def _ended(self, job: Job, code: int) -> None:
        """What becomes of a job whose process has ended."""
        if self._stop.signal is not None or not job.left(self._directory):
            self._board.ended(job)
        elif code == HELD:
            self._hold(job)
        elif code == CHANGED:
            self._changed = last_line((job.left(self._directory)[0]).workdir(self._directory) / "log.txt").removeprefix("error: ")
            self._board.note(f"{job.name}: {self._changed}; nothing more is begun")
            self._waiting.clear()
            self._held.clear()
        elif job.kind == "final" and code in (1, 2):
            self._fail(job, "")
        elif job.kind == "train" and len(job.trials) > 1 and (code in (1, 2) or self._deaths[job.name] == FURTHER):
            self._board.note(f"{job.name}: could not be trained together; going on with one at a time")
            self._waiting.extendleft(Job("train", (one,)) for one in reversed(job.left(self._directory)))
        elif job.kind == "train" and code in (128 + signal.SIGTERM, 128 + signal.SIGHUP):  # somebody's wish, not a death: it does not count
            self._board.note(f"{job.name}: was asked to leave and has saved; going on with it")
            self._waiting.append(job)
        elif self._deaths[job.name] < FURTHER:
            self._deaths[job.name] += 1
            self._board.note(f"{job.name}: its process {_died(code)}; trying again")
            self._waiting.appendleft(job)
        else:
            self._fail(job, f"its process {_died(code)}, {FURTHER + 1} times")

    def _fail(self, job: Job, why: str) -> None:
        """Give a job up: with a record in each of its trials, or a line for the launcher."""
        first = (job.left(self._directory) or job.trials)[0]
        message = "; ".join(part for part in (why, last_line(first.workdir(self._directory) / "log.txt")) if part)
        if job.kind == "final":
            self._failures.append(f"{job.name}: {message}")
        for trial in job.left(self._directory) if job.kind == "train" else []:
            with contextlib.suppress(UserError), RunLock(trial.workdir(self._directory)):
                attempts.give_up(trial.workdir(self._directory), message)
        self._board.ended(job)

    def _finish(self) -> None:
        """Ask the processes that live to save and leave, and wait for them; a second signal kills them."""
        sent = 0
        while self._live:
            wanted = signal.SIGKILL if len(self._stop.signals) > 1 else signal.SIGTERM
            if wanted != sent:
                for live in self._live:
                    _send(live, wanted)
                sent = wanted
            self._wait()


def _send(live: _Live, number: int) -> None:
    """A signal to a job's process."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(live.process.pid, number)


def _started(work: Perform, directory: Path, job: Job, slot: Slot) -> Any:
    """A job's process, forked by the server, which is started first if need be and is made to find this very package."""
    root, before = str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = root if before is None else f"{root}{os.pathsep}{before}"
    resource_tracker.ensure_running()  # started with the server it would unblock SIGTERM again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SHELTERED)  # inherited by the server
    try:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOAD))
        process = context.Process(target=_begin, args=(work, directory, job, slot), name=job.name)
        process.start()
        return process
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def _begin(work: Perform, directory: Path, job: Job, slot: Slot) -> None:
    """The life of a job's process."""
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    slot.enter()
    sys.exit(work(directory, job, slot))


def _end_with_parent() -> None:
    """When the launcher is gone, however it went, ask this process to save and leave; the next launcher waits for its lock."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _died(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended without a word (exit code {code})"


def last_line(log: Path) -> str:
    """The last line of a log that is not empty; "" without any."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, log.stat().st_size - 4096))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
