"""How several processes work and end together: each forks a process that does the work (`Worker`);
process 0 hears how each has ended, decides on the cause, and prints it in one line (`Group`).

The parent of the work never loads jax, so no failure of the work can stop it from reporting. When
JAX loses another process, it aborts with a page of text, or collectives raise or wait forever. So
the work sends its errors to the parent, which finds the cause before anything is printed.

JAX ends the other processes too, but later and otherwise. After `kill -9` of one of two or three
they were aborted by SIGABRT with 18 to 47 lines of text: after 110 s (once, JAX 0.10), with
`heartbeat_timeout_seconds=5` after 0.4 to 15 s (five kills, JAX 0.10 and 0.12, on two busy cores);
and so short a time may also end a run of which one process has only stalled. Here a closed
connection says at once which process is gone.
"""

import contextlib
import dataclasses
import io
import math
import multiprocessing
import os
import pathlib
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Literal, NoReturn, TextIO, get_args

from attnlab.errors import UserError
from attnlab.processes import Member
from attnlab.processes.meeting import Meeting, receive, send

Cause = Literal["done", "lost", "killed", "mistake", "failure", "abort"]
"""How a process has ended: it came to its end; it is gone with its host or its parent; killed by a
signal; a `UserError`; any other exception; by a library below Python. The last two may be what
another process's end has done to it; of several ends the one that comes first here is told.
"""

_KEPT = 40  # lines of the output of libraries below Python
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclasses.dataclass(frozen=True)
class End:
    """How the work of a process has ended.

    Attributes:
      cause: see `Cause`.
      code: exit code of the command.
      text: the error in a line, or what is known about its cause.
      details: further lines to show above it (a traceback).
      error: the exception itself, if it was raised in this process.
    """

    cause: Cause
    code: int
    text: str = ""
    details: str = ""
    error: BaseException | None = None


class _Remote(Exception):
    """The traceback of an exception of another process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class Worker:
    """Forks a process that does `work`.

    Signals that ask to leave are held back until `passing_signals` is entered.

    Args:
      work: what to do; its result is the exit code.
      speaks: whether its output is shown. A silent worker stays after its work until it is stopped.

    Attributes:
      sources: what becomes ready, for `multiprocessing.connection.wait`, when `hear` has something to
        read.
    """

    def __init__(self, work: Callable[[], int], speaks: bool) -> None:
        """Forks a process that calls `work` and prints only if it `speaks`, with pipes for its end
        and for the output of libraries below Python; blocks `SIGNALS` in this process.
        """
        fork = multiprocessing.get_context("fork")
        self._messages, sink = fork.Pipe(duplex=False)
        self._noises, noise = fork.Pipe(duplex=False)
        self._noise = b""
        os.set_blocking(self._noises.fileno(), False)
        # the parent cannot pass a signal on before it knows the worker
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._process = fork.Process(target=_work, args=(work, speaks, sink, noise))
        self._process.start()
        sink.close()
        noise.close()
        ends: list[Connection | int] = [self._messages, self._noises, self._process.sentinel]
        self.sources = ends

    @contextlib.contextmanager
    def passing_signals(self) -> Iterator[None]:
        """Context manager: passes signals that ask this process to leave on to the worker, which
        knows what to save. Signals since the fork are passed on too.
        """
        handlers = {
            number: signal.signal(number, lambda number, frame: self.signal(number))
            for number in SIGNALS
        }
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def signal(self, number: int) -> None:
        """Sends the worker process a signal, unless it has ended."""
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, number)

    def stop(self, patience: float = 5.0) -> None:
        """Kills the worker process and waits up to `patience` seconds for its end."""
        self._process.kill()
        self._process.join(patience)

    def hear(self) -> End | None:
        """Reads without waiting what the worker process has sent; returns the `End` of its work
        that it reports, or later that of the process itself, or None if there is neither.
        """
        if not self.sources:
            return None
        code = self._process.exitcode  # asked first, since nothing comes after the end
        with contextlib.suppress(BlockingIOError):
            if self._noises in self.sources:
                heard = os.read(self._noises.fileno(), 2**16)
                self._noise = b"".join((self._noise + heard).splitlines(True)[-_KEPT:])
                if not heard:
                    self.sources.remove(self._noises)
        if self._messages in self.sources and self._messages.poll():
            try:
                end: End = pickle.loads(self._messages.recv_bytes())
                return end
            except (EOFError, OSError):  # nothing more, or the end came within a message
                self.sources.remove(self._messages)
        if code is None:
            return None
        self.sources.clear()
        return self._end_of_code(code)

    def _end_of_code(self, code: int) -> End:
        """Returns the `End` of a process that has reported none, from its exit code; a negative
        code is the signal that killed it.
        """
        if code >= 0 or -code == signal.SIGABRT:  # a library ended the process
            text = f"ended with exit code {code}" if code >= 0 else "was aborted by a library"
            return End("abort", max(1, code), text, self._noise.decode(errors="replace"))
        return End("killed", 128 - code if -code in SIGNALS else 1, f"was killed by signal {-code}")


def _work(work: Callable[[], int], speaks: bool, sink: Connection, noise: Connection) -> NoReturn:
    """In the forked process: calls `work`; if it succeeds and `speaks`, sends its `End` through
    `sink` and exits; if it fails, sends the error's `End`; then, and after a silent success, waits
    until the parent kills it. Its output below Python goes to the pipe `noise`.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        _redirect(speaks, noise)
        try:
            code = work()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if speaks:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            _send_end(sink, End("done", code))
            os._exit(code)
    except BaseException as error:
        # Ctrl-C comes from the terminal and from the parent
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _send_end(sink, _end_of_error(error))
    # the parent ends it later: closing its connections now would make the others fail
    while True:
        time.sleep(3600.0)


def _end_with_parent() -> None:
    """Waits until the parent process is gone, then kills this process."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGKILL)


def _redirect(speaks: bool, noise: Connection) -> None:
    """Redirects file descriptors 1 and 2 (output of libraries below Python) to the pipe `noise`,
    while the stdout and stderr of Python itself stay as they are if `speaks`, else go nowhere.
    """
    streams = [
        _copy_stream(stream) if speaks else open(os.devnull, "w")  # noqa: SIM115
        for stream in (sys.stdout, sys.stderr)
    ]
    os.dup2(noise.fileno(), 1)
    os.dup2(noise.fileno(), 2)
    noise.close()
    sys.stdout, sys.stderr = streams


def _copy_stream(stream: TextIO | None) -> TextIO | None:
    """Returns a copy of a text stream with a file descriptor of its own, or None for None."""
    if stream is None:
        return None
    options = {
        name: getattr(stream, name)
        for name in ("encoding", "errors", "line_buffering", "write_through")
    }
    return io.TextIOWrapper(open(os.dup(stream.fileno()), "wb"), **options)


def _end_of_error(error: BaseException) -> End:
    """Returns the `End` that describes an exception and holds it: a plain `UserError` for a mistake
    (exit code 2) and a `KeyboardInterrupt` (130) without traceback; any other (1) with its
    traceback as text, which replaces its `__cause__`.
    """
    if isinstance(error, UserError):
        return End("mistake", 2, str(error), error=UserError(str(error)))
    if isinstance(error, KeyboardInterrupt):
        return End("killed", 128 + signal.SIGINT, "was interrupted", error=KeyboardInterrupt())
    details = "".join(traceback.format_exception(error))
    error.__cause__, error.__context__ = _Remote(details), None
    text = f"failed with {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return End("failure", 1, text, details, error)


def _send_end(sink: Connection, end: End) -> None:
    """Sends the end to the parent and closes the pipe; leaves the exception itself out if it cannot
    be pickled.
    """
    try:
        content = pickle.dumps(end)
        pickle.loads(content)
    except Exception:
        content = pickle.dumps(dataclasses.replace(end, error=None))
    sink.send_bytes(content)
    sink.close()


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
