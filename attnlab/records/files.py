"""Writing files: whole replacement, whole appended records, a full disk told in one line; and rows as
CSV for programs and spreadsheets.
"""

import contextlib
import csv
import datetime
import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from attnlab.errors import UserError


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Replaces the file `path` by a file with `content` (text as UTF-8) atomically, also in a power
    cut, but writes into a device or pipe; raises UserError if the disk is full.

    A link stays, and what it leads to is replaced. A replaced file keeps its mode and, where that
    is allowed, its owner. What is no regular file (a device, a pipe) is written into; to what is
    below /dev or /proc the content is added. Only one process at a time may write the same path.

    Raises:
      UserError: the disk is full; the old file is untouched.
      OSError: any other refusal, with `path` as its file.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    with full_disk(path):
        try:
            replaced = os.stat(path)
        except FileNotFoundError:
            replaced = None
        # /dev/stdout may lead to a file that holds more than this
        stream = path.is_absolute() and path.parts[1] in ("dev", "proc")
        if replaced is not None and (stream or not stat.S_ISREG(replaced.st_mode)):
            with open(path, "ab" if stream else "wb", buffering=0) as file:
                _write_all(file, data)
            return
        target = Path(os.path.realpath(path))
        # of at most 255 bytes, which is what file systems take
        name = os.fsdecode(os.fsencode(target.name)[:250])
        temporary = target.with_name(f".{name}.tmp")  # one name, so that kills leave no litter
        try:
            # what stands there may be a link that somebody has put into the folder
            temporary.unlink(missing_ok=True)
            with open(
                temporary,
                "xb",
                buffering=0,
                opener=lambda name, flags: os.open(name, flags, _mode(replaced)),
            ) as file:
                _own_as(replaced, file)
                _write_all(file, data)
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def _mode(replaced: os.stat_result | None) -> int:
    """Returns the mode for a new file: that of the file `replaced` by it, or, where there is none, the
    usual one, from which the process's umask is taken.
    """
    return 0o666 if replaced is None else stat.S_IMODE(replaced.st_mode)


def _own_as(replaced: os.stat_result | None, file: BinaryIO) -> None:
    """Gives a new `file` the mode and, where allowed, the owner of the one `replaced` by it; does
    nothing if there is none.
    """
    if replaced is not None and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        with contextlib.suppress(OSError):  # only root may give files away
            os.fchown(file.fileno(), replaced.st_uid, replaced.st_gid)
        os.fchmod(file.fileno(), _mode(replaced))


def _write_all(file: BinaryIO, data: bytes) -> None:
    """Writes all of `data` to an unbuffered file, in one call as a rule; where the system takes
    less, the next call says why.
    """
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[file.write(remaining) :]


def expanded(path: str | Path) -> Path:
    """Returns the path with "~" replaced by the home folder; raises UserError if there is none.

    Raises:
      UserError: there is no home: neither $HOME nor an entry of the user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise UserError(
            f"{path}: there is no home folder here ($HOME is not set); write the path without '~'"
        ) from error


def cache_folder() -> Path | None:
    """Returns this user's folder for files that can be computed again, `$ATTNLAB_CACHE` or else
    `~/.cache/attnlab`, or None if the variable is empty or no home folder exists; creates nothing.

    Raises:
      UserError: `$ATTNLAB_CACHE` begins with "~", and there is no home.
    """
    named = os.environ.get("ATTNLAB_CACHE")
    if named is not None:
        return expanded(named) if named else None
    try:
        return Path.home() / ".cache" / "attnlab"
    except RuntimeError:  # neither $HOME nor an entry of the user, as in many containers
        return None


def timestamp() -> str:
    """The time now, UTC, in ISO 8601 to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def drop_torn_line(path: Path) -> None:
    """Truncates a file in place behind its last line end, which removes an incomplete record that a
    full disk or a power cut has left; does nothing to an absent file.
    """
    with contextlib.suppress(FileNotFoundError), open(path, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - 1))
        if size and file.read(1) != b"\n":
            file.seek(0)
            file.truncate(file.read(size).rfind(b"\n") + 1)


class AppendOnly:
    """A file that only grows, opened by the first record; each record is one unbuffered write, so a
    kill never tears it.

    Raises (all methods):
      UserError: the disk is full.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file: BinaryIO | None = None

    def append(self, record: bytes) -> None:
        """Writes `record` at the end of the file, which is opened by the first one; raises
        UserError if the disk is full.
        """
        with full_disk(self.path):
            if self._file is None:
                self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115 - stays open
            _write_all(self._file, record)

    def sync(self) -> None:
        """Forces all bytes written so far onto the disk (fsync), if the file is open; raises
        UserError if the file was removed meanwhile.

        Raises:
          UserError: the file was removed since it was opened, so that nobody will ever read what is
            written.
        """
        if self._file is not None:
            with full_disk(self.path):
                os.fsync(self._file.fileno())
                if not os.fstat(self._file.fileno()).st_nlink:
                    raise UserError(
                        f"{self.path} was removed while it was being written; what came after is"
                        " lost"
                    )

    def close(self) -> None:
        """Closes the file; the next `append` opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None


@contextlib.contextmanager
def full_disk(path: Path) -> Iterator[None]:
    """A context that turns an `OSError` of a full disk or quota into a `UserError` with folder and
    file name of `path`, and raises any other `OSError` again with `path` as its file.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"no space left on the disk of {path.parent}: {path.name} was not written"
            ) from error
        # not that of a file in between, which nobody knows
        error.filename, error.filename2 = str(path), None
        raise


def check_folder(flag: str, folder: Path) -> None:
    """Raises `UserError`, naming `flag`, if `folder` or a part of its path is a file."""
    path = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not path.is_dir():
        raise UserError(f"{flag}={folder}: {path} is not a folder; name another")


def csv_text(rows: Iterable[Iterable[Any]], end: str = "\r\n") -> str:
    """Returns rows as the text of a CSV file (RFC 4180). A text that a spreadsheet would run as a
    formula, one that begins with =, +, - or @, gets an apostrophe before it; numbers stay, also
    those in a text.
    """
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator=end).writerows([*map(_inert, row)] for row in rows)
    return buffer.getvalue()


def _inert(cell: Any) -> Any:
    """Returns a table cell; a text that a spreadsheet would run as a formula, since it begins with
    =, +, - or @ and is no number, gets an apostrophe before it.
    """
    if not isinstance(cell, str) or not cell.lstrip().startswith(("=", "+", "-", "@")):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
