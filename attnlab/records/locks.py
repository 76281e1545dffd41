"""The lock of a run directory: `.lock`, held by `flock` until its process ends, however that ends.

On some file systems a machine does not see the `flock` of another one (NFS with `nolock`, Lustre
with `localflock`), and two processes would train one run. So the holder also writes into the file who
it is, with a number that nobody else has, and restores that where somebody overwrites it. Who takes
over from another machine, whose process has not said that it ended, writes itself there and waits
for such an answer before it goes on.

Needs neither jax nor numpy: the launcher and the report read these files too.
"""

import contextlib
import errno
import fcntl
import functools
import json
import os
import secrets
import socket
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NotRequired, TypedDict

from attnlab.errors import UserError
from attnlab.records.files import timestamp
from attnlab.records.json_kinds import Damaged, read

WATCH = 2.0
"""Seconds between two looks of a holder at its record."""
ANSWER = 10.0
"""Seconds to wait for the answer of a holder on another machine."""
_LOOKS = 5  # tries for a lock that somebody may only be looking at
_SIZE = 512  # bytes of a record, with blanks: it is overwritten as a whole
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Holder(TypedDict):
    """Who holds a lock, or has held it last: `machine` names its present life, `end` says when the
    lock was given up; earlier versions wrote neither, and no `nonce`. `only` is "proof" for `prove`.
    """

    pid: int
    host: str
    start: str
    machine: NotRequired[str]
    nonce: NotRequired[str]
    end: NotRequired[str]
    only: NotRequired[str]


class Held(UserError):
    """A lock is held by a live process.

    Attributes:
      holder: which, in words: its pid, host and start.
    """

    def __init__(self, message: str, holder: str) -> None:
        super().__init__(message)
        self.holder = holder


class Unlocked(UserError):
    """A lock does not hold: a live process of another machine has it too."""

    def __init__(self, workdir: str | Path) -> None:
        """Builds this error's message, that the lock of `workdir` does not exclude processes of
        other machines, with the process that has it too and a remedy.
        """
        super().__init__(
            f"the lock of {workdir} does not hold between machines: {holder(workdir)} has it too;"
            " use a file system whose locks all machines see (not NFS with nolock or Lustre with"
            " localflock), or one machine"
        )


class RunLock:
    """Holds `<workdir>/.lock` by `flock` until `release` or the end of the process, however it
    ends.

    The file itself stays: removing it would let two processes lock two different files. The
    directory is made if absent.

    Args:
      workdir: the run directory.
      purpose: why it is taken, if not to work there.
      later: return before it is proved that no other machine has it too; then call `prove`.

    Raises:
      Held: another process holds it.
      Unlocked: it holds nothing.
      UserError: the directory cannot be written.
    """

    def __init__(self, workdir: str | Path, later: bool = False, purpose: str = "") -> None:
        """Takes the lock `<workdir>/.lock` (the folder is made if absent) or raises `Held`, writes
        this process's record, with `purpose`, into it; unless `later`, calls `prove`, which may
        wait, and raises `Unlocked` if a process of another machine has it too.
        """
        self._workdir, self._path = workdir, Path(workdir) / ".lock"
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            self._file = open(file, "r+b", 0)  # noqa: SIM115 - held for the life of the process
        except OSError as error:
            raise UserError(f"cannot use workdir {workdir}: {error.strerror}") from error
        try:
            self._lock()
        except BlockingIOError:
            self._file.close()
            who = holder(workdir)
            message = (
                f"workdir {workdir} is being trained by a live process ({who}): wait for it, or"
                " use another --workdir"
            )
            raise Held(message, who) from None
        previous, self._rival = _record(self._path), ""
        identity: Holder = {"pid": os.getpid(), "host": socket.gethostname(), "start": timestamp()}
        self._record: Holder = {**identity, "machine": machine(), "nonce": secrets.token_hex(8)}
        if purpose:
            self._record["only"] = purpose
        self._write()
        wait = previous is not None and _is_open_elsewhere(previous)
        self._until = time.monotonic() + (ANSWER if wait else 0.0)
        if not later:
            self.prove()

    def _lock(self) -> None:
        """Locks the open lock file by `flock`, trying several times, 0.02 s apart, since `is_held`
        may be testing it; raises BlockingIOError if another process has it, UserError if the file
        system has no locks.
        """
        for tries_left in reversed(range(_LOOKS)):
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    self._file.close()
                    raise UserError(
                        f"cannot lock {self._path}: {error.strerror}; use a --workdir on a file"
                        " system with locks"
                    ) from error
                if not tries_left:
                    raise BlockingIOError from error
            time.sleep(0.02)

    def _write(self) -> None:
        os.pwrite(self._file.fileno(), json.dumps(self._record).encode().ljust(_SIZE), 0)
        os.ftruncate(self._file.fileno(), _SIZE)
        os.fsync(self._file.fileno())

    def _other(self) -> str:
        """The nonce of another process that has written itself into the file; "" for none."""
        record = _record(self._path) or self._record
        return "" if (nonce := record.get("nonce", "")) == self._record["nonce"] else nonce

    def prove(self) -> None:
        """Waits, up to `ANSWER` seconds if a process of another machine may have the lock, and
        raises `Unlocked` if that process writes its record into it again; else adds the lock to
        those that a thread watches from then on.
        """
        while not self._other():
            if time.monotonic() >= self._until:
                _watched.add(self)
                return _watch()
            time.sleep(min(WATCH, ANSWER) / 4)
        self._file.close()
        raise Unlocked(self._workdir)

    def answer(self) -> None:
        """Writes this process's record into the lock file again if another process has overwritten
        it; if the same process overwrites it a second time, prints an error and ends this process
        with exit code 2. The other process got no answer for a while, and goes on.
        """
        with _writing:
            if self._file.closed or not (other := self._other()):
                return
            if other == self._rival:
                print(f"error: {Unlocked(self._workdir)}", file=sys.stderr, flush=True)
                os._exit(2)
            self._rival = other
            with contextlib.suppress(OSError):
                self._write()

    def release(self) -> None:
        """Releases the lock, after writing the time of its end into it unless another process has
        overwritten its record; does nothing a second time.
        """
        with _writing:
            if not self._file.closed:
                if not self._other():  # else its record stays
                    self._record["end"] = timestamp()
                    with contextlib.suppress(OSError):
                        self._write()
                self._file.close()

    def __enter__(self) -> "RunLock":
        return self

    def __exit__(self, *error: object) -> None:
        """Releases the lock at the end of a `with` block."""
        self.release()


_watched: weakref.WeakSet[RunLock] = weakref.WeakSet()
_writing = threading.Lock()


@functools.cache
def _watch() -> None:
    """Starts, once a process, a thread that calls `answer` of every lock of this process each
    `WATCH` seconds.
    """

    def look() -> None:
        """Calls `answer` of every lock each `WATCH` seconds, for ever."""
        while True:
            time.sleep(WATCH)
            for lock in list(_watched):
                lock.answer()

    threading.Thread(target=look, name="locks", daemon=True).start()


def prove(workdir: str | Path) -> None:
    """Raises `Unlocked` if a process of another machine works in a folder and its lock is not seen
    here. Where it cannot be told, because that process has died, it takes `ANSWER` seconds.
    """
    if is_elsewhere(workdir):
        with contextlib.suppress(Held):
            RunLock(workdir, purpose="proof").release()


def is_held(workdir: str | Path) -> bool:
    """Returns whether a live process (seen by `flock` from this machine) holds the lock of
    `workdir`; writes nothing.
    """
    try:
        with open(Path(workdir) / ".lock", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def is_proving(workdir: str | Path) -> bool:
    """Returns whether the process that holds a lock is in `prove`, and gives it up soon."""
    record = _record(Path(workdir) / ".lock")
    return record is None or "only" in record


def is_elsewhere(workdir: str | Path) -> bool:
    """Returns whether the record of a lock names a process of another machine that has not ended."""
    record = _record(Path(workdir) / ".lock")
    return record is not None and _is_open_elsewhere(record)


def holder(workdir: str | Path) -> str:
    """Returns a text on the process that holds the lock of `workdir`, or held it last: its pid,
    host and start.
    """
    record = _record(Path(workdir) / ".lock")
    if record is None:
        return "it has not said which"
    return f"pid {record['pid']} on {record['host']} since {record['start']}"


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds a lock on the file `path` inside the context, so that only one process at a time is
    inside and the others wait; it ends with its process, however that ends.
    """
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def machine() -> str:
    """Returns an identifier of this machine and its present boot, which no other has; "" if the
    system has none.
    """
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def _is_open_elsewhere(record: Holder) -> bool:
    """Returns whether a lock's record is of another machine and has no end; a record of an earlier
    version, without a nonce, counts as ended, since its process never writes an end nor answers.
    """
    this_machine = (socket.gethostname(), machine())
    if "end" in record or "nonce" not in record:
        return False
    return (record["host"], record.get("machine", this_machine[1])) != this_machine


def _record(path: Path) -> Holder | None:
    """Returns the record in the lock file `path`, or None if it is absent or being written."""
    try:
        return read(path.read_bytes(), Holder)
    except (OSError, Damaged):
        return None
