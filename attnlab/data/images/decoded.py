"""Images of files, decoded by all cores, once for all trials: the arrays lie in the user's cache, and
every later reading maps them into memory, so that trials of one machine share them.
"""

import contextlib
import fcntl
import hashlib
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import numpy as np

from attnlab.errors import UserError
from attnlab.records.files import cache_folder

VERSION = 1
"""Of what `attnlab.data.readers.images` makes of a file: one more when that changes."""
MOST, IDLE = 64 << 30, 86_400
"""How many bytes of arrays may lie in the cache, but for those used within so many seconds."""

Cell = TypeVar("Cell", bound=Path | bytes | tuple[Path | bytes, ...])
Read = TypeVar("Read")


def in_parallel(read: Callable[[Cell], Read], cells: Iterable[Cell]) -> list[Read]:
    """Returns what `read` makes of each file, in their order, by as many threads as there are cores;
    of several errors the first in this order is raised.
    """
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(read, cells))


def decoded(cells: Sequence[Cell], read: Callable[[Cell], np.ndarray], key: object) -> np.ndarray:
    """Returns the arrays that `read` makes of files or bytes (`cells`), such as images, stacked as
    [N,...]: from the cache on disk if an equal `key` and unchanged files are in it, else read and,
    if possible, written to it; raises `UserError` if their sizes differ.

    Args:
      cells: the files, paths or bytes; or tuples of several from which one array is made.
      read: makes an image of one.
      key: all that decides what `read` makes of a file, by its `repr`.

    Raises:
      UserError: what `read` raises, or images of different sizes.
    """
    with _cache_path(key, cells) as path:
        if path is not None:
            with contextlib.suppress(Exception):  # none is there, or damaged
                content = np.memmap(path, mode="r")
                if content[-4:].tobytes() == _checksum(content[:-4]):
                    with contextlib.suppress(OSError):  # it is somebody else's
                        os.utime(path)
                    return np.load(path, mmap_mode="r").view(np.ndarray)
        names = [
            cell if isinstance(cell, Path) else f"image {n}" for n, cell in enumerate(cells, 1)
        ]
        images = stacked(list(zip(names, in_parallel(read, cells), strict=True)))
        if path is not None:
            temporary = path.with_suffix(".tmp")
            with contextlib.suppress(OSError), open(temporary, "wb") as file:  # a full disk
                np.save(file, images)
                file.flush()
                file.write(_checksum(np.memmap(temporary, mode="r")))
                file.flush()
                os.fsync(file.fileno())
                os.replace(temporary, path)
                _make_room(path.parent)
            temporary.unlink(missing_ok=True)
    return images


@contextlib.contextmanager
def _cache_path(key: object, cells: Sequence[Cell]) -> Iterator[Path | None]:
    """Yields, for a `with` statement, the path in the cache of the array made of `cells` with
    `key`, locked against other processes, or None if no cache can be written or a file is missing.
    """
    import PIL

    with contextlib.ExitStack() as stack:
        path = None
        with contextlib.suppress(OSError):
            identity = repr((key, VERSION, PIL.__version__, [*map(_identity, cells)]))
            folder = (cache_folder() or Path(os.devnull)) / "images"
            folder.mkdir(parents=True, exist_ok=True)
            name = folder / hashlib.sha256(identity.encode()).hexdigest()[:32]
            fcntl.flock(stack.enter_context(open(f"{name}.lock", "ab")), fcntl.LOCK_EX)
            path = Path(f"{name}.npy")
        yield path


def _make_room(folder: Path) -> None:
    """Deletes the least recently used arrays (*.npy) of a folder until the others have at most
    `MOST` bytes, but none that was used in the last `IDLE` seconds; a process that has mapped a
    deleted array can still read it.
    """
    states = [(path, path.stat()) for path in folder.glob("*.npy")]
    total = 0
    for path, state in sorted(states, key=lambda pair: -pair[1].st_mtime_ns):
        total += state.st_size
        if total > MOST and state.st_mtime < time.time() - IDLE:
            path.unlink(missing_ok=True)


def _identity(cell: Path | bytes | tuple[Path | bytes, ...]) -> object:
    """Returns values that change if an image changes: of a file its path, inode, size and times of
    its last changes in ns, of bytes their SHA-256, of a tuple a list of these.
    """
    if isinstance(cell, tuple):
        return [*map(_identity, cell)]
    if isinstance(cell, bytes):
        return hashlib.sha256(cell).hexdigest()
    state = os.stat(cell)
    times = state.st_mtime_ns, state.st_ctime_ns  # the second cannot be set
    return os.path.abspath(cell), state.st_ino, state.st_size, *times


def _checksum(content: np.ndarray) -> bytes:
    """Returns the CRC-32 of bytes, 4 bytes that stand behind them in a file of the cache."""
    return zlib.crc32(content.data).to_bytes(4)


def stacked(images: Sequence[tuple[object, np.ndarray]]) -> np.ndarray:
    """Stacks images given as (name, array) into one array [N,H,W,C]; raises `UserError` if their
    sizes differ.
    """
    first, image = images[0]
    for name, other in images:
        if other.shape != image.shape:
            size, first_size = (f"{array.shape[0]} x {array.shape[1]}" for array in (other, image))
            raise UserError(
                f"{name} is {size} pixels, {first} {first_size}; set config.data.side to resize all"
            )
    return np.stack([image for _, image in images])
