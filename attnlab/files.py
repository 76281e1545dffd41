"""Writing a run's files: whole replacement, whole appended records, and a full disk told in one line."""

from __future__ import annotations

import contextlib
import datetime
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from attnlab.errors import UserError


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Replace `path` by a file with `content` (text as UTF-8): after a kill or power cut the old or the new one is there, whole.

    Only one process at a time may write the same path.

    Raises:
      UserError: the disk is full; the old file is untouched.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")  # one name, so that kills leave no litter
    with full_disk(path):
        try:
            with open(temporary, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def timestamp() -> str:
    """The time now, UTC, in ISO 8601 to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def drop_torn_line(path: Path) -> None:
    """Cut off what follows the last line end: half a record that a full disk or a power cut has left. An absent file is whole."""
    with contextlib.suppress(FileNotFoundError), open(path, "r+b") as file:
        content = file.read()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)


class AppendOnly:
    """A file that only grows, opened by the first record; each record is one unbuffered write, so a kill never tears it.

    Raises (all methods):
      UserError: the disk is full.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: BinaryIO | None = None

    def append(self, record: bytes) -> None:
        """Write `record` at the end."""
        with full_disk(self.path):
            if self._file is None:
                self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - stays open
            if self._file.write(record) != len(record):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        """Force what was written onto the disk."""
        if self._file is not None:
            with full_disk(self.path):
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close; the next `append` opens again."""
        if self._file is not None:
            self._file.close()
            self._file = None


@contextlib.contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """Turn "no space left" (or quota) into a `UserError` that names the folder and file."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(f"no space left on the disk of {path.parent}: {path.name} was not written") from error
        raise
