"""The streams of a command, in any state that its caller leaves them: closed, ascii, on a full
disk, into a pipe that nobody reads.
"""

import contextlib
import io
import os
import sys
from typing import IO

from attnlab.errors import UserError, visible


class Shown(io.TextIOWrapper):
    """A stream to a terminal that shows control characters as visible signs and sends none.

    Args:
      bare: the stream below, which progress bars write to unchanged.
    """

    def __init__(self, bare: io.TextIOWrapper) -> None:
        sink = open(bare.fileno(), "wb", closefd=False)  # noqa: SIM115 - until the end
        super().__init__(sink, bare.encoding, bare.errors, line_buffering=True)
        self.bare = bare

    def write(self, text: str) -> int:
        """Writes a text with its control characters made visible, see `visible`."""
        return super().write(visible(text))


def prepare() -> None:
    """Makes the standard streams safe to write to: opens the null device for closed ones, escapes
    what they cannot encode, shows control characters on a terminal; raises `UserError` if stdout is
    closed.

    A closed stream leaves its number free, so that a file of the run would get it, with whatever a
    library prints: the null device takes the number. A closed stderr is as good as that.
    Letters that the encoding lacks are escaped (`generate` sets UTF-8, for its answers have to be
    exact). On a terminal control characters are shown; a file or a pipe gets texts as they are.

    Raises:
      UserError: stdout is closed, so that no result could be printed.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    closed = sys.stdout is None
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 - until the end
    if closed:
        raise UserError(
            "stdout is closed, so that nothing could be told; send it to a file, or to /dev/null"
        )
    reconfigure(errors="backslashreplace")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper and stream.isatty():
            setattr(sys, name, Shown(stream))


def reconfigure(errors: str, encoding: str | None = None) -> None:
    """Changes encoding and error handling of stdout, if it is a text stream."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding, errors=errors)


def finish(message: str) -> None:
    """Flushes stdout after an error, or drops its buffer if that fails; then prints `message`, if
    not empty, to stderr.

    Python flushes streams once more when it ends, and would report a failure with its own message
    and exit code.
    """
    _flush(sys.stdout)
    if message:
        with contextlib.suppress(OSError):
            print(message, file=sys.stderr)
        _flush(sys.stderr)


def _flush(stream: IO[str]) -> None:
    """Flushes a stream; if that fails, points it to the null device, so that Python's own flush at
    the end does not fail.
    """
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):  # a stand-in without a number, of a test or a notebook
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
