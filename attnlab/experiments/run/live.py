"""The process of a job, seen from its launcher: start in a slot, request to leave, kill if it does
not, end; and the start of any process that needs jax, planning too (`start`). And the signals to a
launcher (`Stop`): the first asks its processes to save and leave, the second kills them.

Processes are forked from a server of `multiprocessing` that has imported jax but started no
backend, which saves the seconds of the imports. A process ends with its launcher. It has its own
process group, so Ctrl-C on a terminal reaches only the launcher, which passes it on. If the server
is killed, the next job starts it again; its processes continue, are tracked by their number, and
keep their slots. Nothing here imports jax.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from types import FrameType
from typing import Any

from attnlab.experiments.run.jobs import WHOLE, Job, Part
from attnlab.experiments.run.slots import Slot
from attnlab.training import programs

GRACE = 60.0
"""Seconds that a process asked to leave has for it, unless told otherwise. It leaves after the step
or the evaluation that it is in; one that needs longer is killed, and goes on from its last
checkpoint.
"""
COMPILING = 1800.0
"""Seconds that it has beyond these while it compiles a program, which cannot be interrupted."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ORPHANED = 255  # the exit code that multiprocessing returns if the server is gone
PRELOAD = (
    "attnlab.experiments.plan.process",
    "attnlab.experiments.run.jobs",
    "attnlab.training.loop",
    "attnlab.training.run",
    "attnlab.tasks.pairs",
    "attnlab.tasks.classification",
    "attnlab.tasks.language_modelling",
    "orbax.checkpoint",
)
SHELTERED = (*_SIGNALS, signal.SIGUSR1, signal.SIGUSR2)
"""What a terminal or a scheduler may send to every process of a job: it must not end the server,
whose processes would be lost with it.
"""
_STARTS, _BETWEEN = 5, 0.2
"""Attempts to start a process if the server dies at that moment, and the seconds between two."""

OOM_COUNTERS = (
    Path("/sys/fs/cgroup/memory.events"),  # of this container, cgroup v2
    Path("/sys/fs/cgroup/memory/memory.oom_control"),  # v1
    Path("/proc/vmstat"),  # of the whole machine
)
"""Where Linux counts how often it has killed a process for lack of memory."""

Perform = Callable[[Path, Job, Slot], int]


@dataclasses.dataclass(frozen=True)
class WorkOptions:
    """Options of every worker of a sweep; only `accept_cores` changes a number.

    Attributes:
      part: of the trials that it takes.
      limit: seconds that a trial may take, all its attempts together (trials in one program: as
        many times that; so too the seeds of an evaluation); None for any. One that takes longer is
        stopped and has failed.
      grace: seconds in which a process that is asked to leave must do so; then it is killed. One
        that compiles a program has longer (`Leaving`).
      accept_cores: run trials on fewer cores than planned.
      compiling: seconds that one that compiles has beyond `grace` at most.
    """

    part: Part = WHOLE
    limit: float | None = None
    grace: float = GRACE
    accept_cores: bool = False
    compiling: float = COMPILING


DEFAULTS = WorkOptions()


class Leaving:
    """The time that a process has to leave, from now on.

    Args:
      options: say how long. One that still compiles when half of `grace` is over has as much again,
        until that is done, but `compiling` seconds more at most.

    Attributes:
      seconds: that it has in all.
    """

    def __init__(self, options: WorkOptions) -> None:
        """Stores the time limits of `options` and the present time, from which they count."""
        self._grace, self._compiling = options.grace, options.compiling
        self._asked, self.seconds = time.monotonic(), options.grace

    def over(self, compiles: bool) -> bool:
        """Returns whether the time to leave is over; first extends it if the process compiles and
        half of `grace` or less is left.
        """
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
      options: the time that it has to leave.

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
        self, work: Perform, directory: Path, job: Job, slot: Slot, options: WorkOptions = DEFAULTS
    ) -> None:
        """Starts a process that binds itself to the slot and calls `work(directory, job, slot)`,
        and stores what is needed to follow and end it; `options` hold the time that it has to
        leave.
        """
        self.job, self.slot, self.why, self.asked = job, slot, "", False
        self.open, self.alone, self.before = list(job.trials), False, 0.0
        self._options, self._leaving, self._killed = options, Leaving(options), False
        self._under_way = multiprocessing.get_context("forkserver").RawValue("i", 0)
        self._code: int | None = None
        self._kills, self._began = oom_kills(), time.monotonic()
        given = (work, directory, job, slot)
        self._process = start(
            _enter_and_work, *given, name=job.name, grace=options.grace, under_way=self._under_way
        )
        self._handle = _handle(self._process.pid)

    @property
    def seconds(self) -> float:
        """Seconds of work on it, by a monotonic clock."""
        return self.before + time.monotonic() - self._began

    @property
    def signs(self) -> list[Any]:
        """Return objects that become readable when it ends; none if the system has none."""
        if self._process.exitcode is None:
            return [self._process.sentinel]
        return [] if self._handle is None else [self._handle]

    def exit_code(self) -> int | None:
        """Returns the exit code of the process (-n after signal n; `ORPHANED` if its server is
        gone, so that the code is unknown), or None while it lives.
        """
        code: int | None = self._process.exitcode
        if self._code is None and code is not None and not (code == ORPHANED and self._breathes()):
            self._code = code
            if self._handle is not None:
                os.close(self._handle)
        return self._code

    def out_of_memory(self, code: int) -> bool:
        """Returns whether the process, ended with `code`, may have been killed by the kernel for
        lack of memory: by a SIGKILL that we did not cause, while the kernel's count of such kills
        grew or is unknown.
        """
        after = oom_kills()
        grown = after is None or self._kills is None or after > self._kills
        return code == -signal.SIGKILL and not self.asked and grown

    def ask(self) -> None:
        """Asks the process once, by SIGTERM, to save and leave."""
        if not self.asked:
            self.asked, self._leaving = True, Leaving(self._options)
            self._send(signal.SIGTERM)

    @property
    def compiles(self) -> bool:
        """Whether it compiles a program."""
        return bool(self._under_way.value)

    def hurry(self) -> str:
        """Kills the process if it was asked to leave and its time is over; returns a message on
        that, or on why it gets more time (it compiles), or "" if there is nothing new.
        """
        if not self.asked or self._killed:
            return ""
        before = self._leaving.seconds
        if self._leaving.over(self.compiles):
            self._killed = True
            self.kill()
            return f"has not left within {self._leaving.seconds:.4g} s of being asked; killed"
        longer = before == self._options.grace < self._leaving.seconds
        return "compiles, which cannot be interrupted; it leaves after that" if longer else ""

    def kill(self) -> None:
        """Kills the process (SIGKILL)."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def _breathes(self) -> bool:
        """Returns whether the process itself lives, even if the server that forked it is gone."""
        if self._handle is not None:
            return not wait([self._handle], 0)
        try:
            os.kill(self._process.pid, 0)
        except OSError:
            return False
        return True


def died(code: int) -> str:
    """Returns words such as "was killed by SIGKILL" for a process that ended with this exit code
    (-n: by signal n) and left no record.
    """
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    if code == ORPHANED:
        return "ended, and nobody knows how: its server was gone"
    return f"ended without a word (exit code {code})"


def oom_kills() -> int | None:
    """Returns the sum of all 'oom_kill' counters of the kernel that can be read, of this container
    and of the machine, or None if none can be read; it grows with every kill for lack of memory,
    maybe by more than one.
    """
    counts = []
    for path in OOM_COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            lines = path.read_text().splitlines()
            counts += [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
    return sum(counts) if counts else None


def _handle(pid: int) -> int | None:
    """Returns a file descriptor that becomes readable when the process `pid` ends, even if it gets
    another parent, or None if the system has none.
    """
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def start(
    target: Callable[..., int], *given: Any, name: str, grace: float = GRACE, under_way: Any = None
) -> Any:
    """Starts a process that calls `target(*given)`, forked from a server that has imported jax
    (started if necessary), and returns it; it must leave within `grace` seconds when this process
    is gone, and counts what it compiles in the memory `under_way`.

    Args:
      target: what it does; the result is its exit code. Importable.
      given: the arguments of `target`.
      name: of the process.
      grace: seconds that it has to leave when this process is gone.
      under_way: memory in which it counts what it compiles; None for memory of its own.
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
                target=_begin, args=(target, given, grace, under_way), name=name
            )
            try:
                process.start()
                break
            except (OSError, EOFError):
                # the server was just killed; a process that it forked may hold the lock of the trial
                if not left:
                    raise
                time.sleep(_BETWEEN)
        return process
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


def _begin(target: Callable[..., int], given: Sequence[Any], grace: float, under_way: Any) -> None:
    """The main function of a forked process: makes its own process group, unblocks signals, has it
    end within `grace` seconds after the launcher, counts what it compiles in `under_way`, and exits
    with the result of `target(*given)`.
    """
    programs.under_way = programs.under_way if under_way is None else under_way
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    threading.Thread(target=_end_with_parent, args=(grace,), daemon=True).start()
    sys.exit(target(*given))


def _enter_and_work(work: Perform, directory: Path, job: Job, slot: Slot) -> int:
    """Binds this process to a slot, does the job by `work`, and returns the exit code."""
    slot.enter()
    return work(directory, job, slot)


def _end_with_parent(grace: float) -> None:
    """Waits until the launcher is gone, then sends this process SIGTERM, so that it saves and
    leaves, and kills it after `grace` seconds, later if it compiles. The next launcher waits for
    its lock.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
        leaving = Leaving(WorkOptions(grace=grace))
        while not leaving.over(bool(programs.under_way.value)):
            time.sleep(min(1.0, grace))
        os.kill(os.getpid(), signal.SIGKILL)


class Stop:
    """While entered, signals are only remembered; one that was ignored before (SIGHUP under nohup)
    stays ignored.

    Attributes:
      signals: the numbers of those that came, in order.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        self._before: dict[int, Any] = {}

    @property
    def signal(self) -> int | None:
        """The first that came, None before."""
        return self.signals[0] if self.signals else None

    def __enter__(self) -> "Stop":
        for number in _SIGNALS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)


class FirstStop(Stop):
    """A `Stop` for which only the first signal counts: what places a worker may repeat it while the
    trial saves.
    """

    def _remember(self, number: int, frame: FrameType | None) -> None:
        if not self.signals:
            super()._remember(number, frame)
