"""The process of a job, seen from its launcher: start in a slot, request to leave, kill if it does
not, end.

Processes are forked from a server of `multiprocessing` that has imported jax but started no
backend, which saves the seconds of the imports. A process ends with its launcher. It has its own
process group, so Ctrl-C on a terminal reaches only the launcher, which passes it on. If the server
is killed, the next job starts it again; its processes continue, are tracked by their number, and
keep their slots. Nothing here imports jax.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from attnlab.experiments.run import memory
from attnlab.experiments.run.jobs import Job
from attnlab.experiments.run.slots import Slot
from attnlab.training import programs

GRACE = 60.0
"""Seconds that a process asked to leave has for it, unless told otherwise. It leaves after the step
or the evaluation that it is in; one that needs longer is killed, and goes on from its last
checkpoint.
"""
COMPILING = 1800.0
"""Seconds that it has beyond these while it compiles a program, which cannot be interrupted."""
ORPHANED = 255  # the exit code that multiprocessing returns if the server is gone
PRELOAD = (
    "attnlab.experiments.run.process",
    "attnlab.training.loop",
    "attnlab.training.run",
    "attnlab.tasks.translation",
    "attnlab.tasks.classification",
    "attnlab.tasks.language_modelling",
    "orbax.checkpoint",
)
SHELTERED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What a terminal or a scheduler may send to every process of a job: it must not end the server,
whose processes would be lost with it.
"""
_STARTS, _BETWEEN = (
    5,
    0.2,
)  # attempts to start a process if the server dies at that moment, and the seconds between

Perform = Callable[[Path, Job, Slot], int]


class Leaving:
    """The time that a process has to leave, from now on.

    Args:
      grace: seconds. One that still compiles when half of them are over has as many again, until
        that is done.
      compiling: seconds that it has beyond these at most while it compiles.

    Attributes:
      seconds: that it has in all.
    """

    def __init__(self, grace: float, compiling: float = COMPILING) -> None:
        self._grace, self._compiling, self._asked = grace, compiling, time.monotonic()
        self.seconds = grace

    def over(self, compiles: bool) -> bool:
        """Whether its time is over."""
        now = time.monotonic() - self._asked
        if compiles and now >= self.seconds - self._grace / 2:
            self.seconds = min(now, self._compiling) + self._grace
        return now >= self.seconds


class Live:
    """A job's process, from its start to its end.

    Args:
      work: what it does.
      directory: the sweep's folder.
      job: whose it is.
      slot: where it runs.
      grace: seconds that it has to leave.
      compiling: beyond these, while it compiles.

    Attributes:
      job: whose it is.
      slot: where it runs.
      open: the trials that were left to do when it began.
      alone: whether nothing else runs beside it.
      before: seconds that earlier processes have worked on it.
      why: why it was stopped and counts as failed; "" if it does not.
      asked: whether it was asked to leave.
    """

    def __init__(
        self,
        work: Perform,
        directory: Path,
        job: Job,
        slot: Slot,
        grace: float = GRACE,
        compiling: float = COMPILING,
    ) -> None:
        self.job, self.slot, self.why, self.asked = job, slot, "", False
        self.open, self.alone, self.before = list(job.trials), False, 0.0
        self._grace, self._compiling, self._killed = grace, compiling, False
        self._leaving = Leaving(grace, compiling)
        self._under_way = multiprocessing.get_context("forkserver").RawValue("i", 0)
        self._code: int | None = None
        self._kills, self._began = memory.kills(), time.monotonic()
        self._process = _started(work, directory, job, slot, grace, self._under_way)
        self._handle = _handle(self._process.pid)

    @property
    def seconds(self) -> float:
        """Seconds of work on it, by a monotonic clock."""
        return self.before + time.monotonic() - self._began

    @property
    def signs(self) -> list[Any]:
        """Objects that become readable when it ends."""
        if self._process.exitcode is None:
            return [self._process.sentinel]
        return [] if self._handle is None else [self._handle]

    def exit_code(self) -> int | None:
        """Its exit code, -n after signal n; None while it lives; `ORPHANED`, not known, if its
        server is gone.
        """
        code: int | None = self._process.exitcode
        if self._code is None and code is not None and not (code == ORPHANED and self._breathes()):
            self._code = code
            if self._handle is not None:
                os.close(self._handle)
        return self._code

    def out_of_memory(self, code: int) -> bool:
        """Whether the kernel may have killed it for lack of memory: its count of such kills grew or
        cannot be read.
        """
        after = memory.kills()
        return (
            code == -signal.SIGKILL
            and not self.asked
            and (after is None or self._kills is None or after > self._kills)
        )

    def ask(self) -> None:
        """Ask it to save and leave, once."""
        if not self.asked:
            self.asked, self._leaving = True, Leaving(self._grace, self._compiling)
            self._send(signal.SIGTERM)

    @property
    def compiles(self) -> bool:
        """Whether it compiles a program."""
        return bool(self._under_way.value)

    def hurry(self) -> str:
        """Kill it if it was asked and has not left within its time; a word on that, and one before
        on why it has longer. "" if there is nothing new.
        """
        if not self.asked or self._killed:
            return ""
        before = self._leaving.seconds
        if self._leaving.over(self.compiles):
            self._killed = True
            self.kill()
            return f"has not left within {self._leaving.seconds:.4g} s of being asked; killed"
        longer = before == self._grace < self._leaving.seconds
        return "compiles, which cannot be interrupted; it leaves after that" if longer else ""

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def _breathes(self) -> bool:
        """Whether the process itself lives, even if its server is gone."""
        if self._handle is not None:
            return not wait([self._handle], 0)
        try:
            os.kill(self._process.pid, 0)
        except OSError:
            return False
        return True


def died(code: int) -> str:
    """The message for a process that ended with this code and without a record."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return (
        "ended, and nobody knows how: its server was gone"
        if code == ORPHANED
        else f"ended without a word (exit code {code})"
    )


def _handle(pid: int) -> int | None:
    """A file descriptor that becomes readable when the process ends, also when its parent is
    another by then; None if the system has none.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _started(
    work: Perform, directory: Path, job: Job, slot: Slot, grace: float, under_way: Any
) -> Any:
    """The process of a job, forked by the server; the server is started if necessary, and imports
    this package.
    """
    root, before = str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = root if before is None else f"{root}{os.pathsep}{before}"
    resource_tracker.ensure_running()  # if started with the server, it would unblock SIGTERM again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SHELTERED)  # inherited by the server
    try:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOAD))
        for left in reversed(range(_STARTS)):
            process = context.Process(
                target=_begin, args=(work, directory, job, slot, grace, under_way), name=job.name
            )
            try:
                process.start()
                break
            except (
                OSError,
                EOFError,
            ):  # the server was just killed; a process that it forked may hold the lock of the trial
                if not left:
                    raise
                time.sleep(_BETWEEN)
        return process
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def _begin(
    work: Perform, directory: Path, job: Job, slot: Slot, grace: float, under_way: Any
) -> None:
    """The main function of the process of a job; it counts in `under_way` what it compiles."""
    programs.under_way = under_way
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    threading.Thread(target=_end_with_parent, args=(grace,), daemon=True).start()
    slot.enter()
    sys.exit(work(directory, job, slot))


def _end_with_parent(grace: float) -> None:
    """When the launcher is gone, ask this process to save and leave, and end it if it does not. The
    next launcher waits for its lock.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        leaving = Leaving(grace)
        while not leaving.over(bool(programs.under_way.value)):
            time.sleep(min(1.0, grace))
        os.kill(os.getpid(), signal.SIGKILL)
