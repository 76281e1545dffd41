"""The forked process that does the work of one of several processes, seen from its parent.

The parent (`supervision.py`) never loads jax, so no failure of the work can stop it from reporting.
When JAX loses another process, it aborts with a page of text, or collectives raise or wait forever.
So the work sends its errors to the parent, which finds the cause before anything is printed.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Literal, NoReturn

from attnlab.errors import UserError

Cause = Literal["done", "lost", "killed", "mistake", "failure", "abort"]
"""How a process has ended: it came to its end; it is gone with its host or its parent; killed by a
signal; a `UserError`; any other exception; by a library below Python. The last two may be what
another process's end has done to it.
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

    Signals that ask to leave are held back until `signalled` is entered.

    Args:
      work: what to do; its result is the exit code.
      speaks: whether its output is shown. A silent worker stays after its work until it is stopped.
      ended: called from a thread, once or twice: with the failure of the work, and with the end of
        the process.
    """

    def __init__(self, work: Callable[[], int], speaks: bool, ended: Callable[[End], None]) -> None:
        lifeline, self._lifeline = os.pipe()
        source, sink = os.pipe()
        heard, noise = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()  # otherwise both would print its content
        signal.pthread_sigmask(
            signal.SIG_BLOCK, SIGNALS
        )  # the parent cannot pass a signal on before it knows the worker
        self.pid = os.fork()
        if self.pid == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            for end in (self._lifeline, source, heard):
                os.close(end)
            _work(work, speaks, lifeline, sink, noise)
        for end in (lifeline, sink, noise):
            os.close(end)
        self._ended, self._noise = ended, collections.deque[bytes](maxlen=_KEPT)
        self._listener = threading.Thread(target=self._hear, args=(heard,), daemon=True)
        self._reader = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._waiter = threading.Thread(target=self._wait, daemon=True)
        for thread in (self._listener, self._reader, self._waiter):
            thread.start()

    @contextlib.contextmanager
    def signalled(self) -> Iterator[None]:
        """While entered, signals that ask the process to end go to the worker, which knows what to
        save. Signals since the fork are passed on too.
        """
        before: dict[int, Any] = {
            number: signal.signal(number, lambda number, frame: self.signal(number))
            for number in SIGNALS
        }
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def stop(self, patience: float = 5.0) -> None:
        """End it at once."""
        if self._waiter.is_alive():
            self.signal(signal.SIGKILL)
        self._waiter.join(patience)

    def _hear(self, descriptor: int) -> None:
        with open(descriptor, "rb") as pipe:
            self._noise.extend(pipe)

    def _read(self, descriptor: int) -> None:
        with open(descriptor, "rb") as pipe:
            content = pipe.read()
        if content:
            self._ended(pickle.loads(content))

    def _wait(self) -> None:
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        self._reader.join(1.0)
        self._listener.join(1.0)  # a grandchild may still hold it open
        self._ended(self._unasked(code))

    def _unasked(self, code: int) -> End:
        """An end without a message from the work: its exit code; a negative one is the signal that
        killed it.
        """
        if code >= 0 or -code == signal.SIGABRT:  # a library ended the process
            text = f"ended with exit code {code}" if code >= 0 else "was aborted by a library"
            return End("abort", max(1, code), text, b"".join(self._noise).decode(errors="replace"))
        return End("killed", 128 - code if -code in SIGNALS else 1, f"was killed by signal {-code}")


def _work(work: Callable[[], int], speaks: bool, lifeline: int, sink: int, noise: int) -> NoReturn:
    """All that the forked process does."""
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
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
            _tell(sink, End("done", code))
            os._exit(code)
    except BaseException as error:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # Ctrl-C comes from the terminal and from the parent
        _tell(sink, _failed(error))
    # the parent ends it later: closing its connections now would make the others fail
    while True:
        time.sleep(3600.0)


def _end_with_parent(lifeline: int) -> None:
    """Wait until the parent is gone, then end."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _redirect(speaks: bool, noise: int) -> None:
    """Send output from below Python to the parent, and output of Python to where it went before, or
    nowhere.
    """
    streams = [
        _like(stream) if speaks else open(os.devnull, "w")  # noqa: SIM115
        for stream in (sys.stdout, sys.stderr)
    ]
    os.dup2(noise, 1)
    os.dup2(noise, 2)
    os.close(noise)
    sys.stdout, sys.stderr = streams


def _like(stream: Any) -> Any:
    """A copy of `stream` with its own descriptor; None stays None."""
    if stream is None:
        return None
    binary = open(os.dup(stream.fileno()), "wb")  # noqa: SIM115
    options = {"line_buffering": stream.line_buffering, "write_through": stream.write_through}
    return io.TextIOWrapper(binary, encoding=stream.encoding, errors=stream.errors, **options)


def _failed(error: BaseException) -> End:
    """The `End` for an exception."""
    if isinstance(error, UserError):
        return End("mistake", 2, str(error), error=UserError(str(error)))
    if isinstance(error, KeyboardInterrupt):
        return End("killed", 128 + signal.SIGINT, "was interrupted", error=KeyboardInterrupt())
    text = "".join(traceback.format_exception(error))
    error.__cause__, error.__context__ = _Remote(text), None
    return End(
        "failure",
        1,
        f"failed with {type(error).__name__}: {' '.join(str(error).split())[:200]}",
        text,
        error,
    )


def _tell(sink: int, end: End) -> None:
    """Send the end to the parent; an exception that cannot be sent goes as text only."""
    try:
        content = pickle.dumps(end)
        pickle.loads(content)
    except Exception:
        content = pickle.dumps(dataclasses.replace(end, error=None))
    with open(sink, "wb") as pipe:
        pipe.write(content)
