"""Image files that somebody else wrote, as bytes [H,W,C] with one channel or three; decoded by all cores,
once for all trials.

What becomes of each kind of pixels stands in `MODES`. Only the first 8 of 16 bits are kept, as
Pillow does with colours. Transparency is left out: a pixel has the colour that is stored for it,
as torchvision and TensorFlow's decoders have it, and a line says so once. An EXIF orientation is
applied unless the caller asks for the pixels as they are stored; Pillow itself always applies that
of a TIFF file. Animations are refused, of a photo with several pictures (MPO) the first counts.

Arrays of decoded images lie in the user's cache, and every later reading maps them into memory, so
that trials of one machine share them.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar

import numpy as np

from attnlab.data.files import alike
from attnlab.errors import UserError
from attnlab.records.files import cache_folder

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM", "JPEG2000")
"""By Pillow's names (its JPEG has MPO too); no others are tried, some of them run programs."""

Fate = Literal["taken", "translated", "refused"]
Named = tuple[Path | BinaryIO, str]
"""An image file or the bytes of one, and what an error calls it."""
_HIGH, _ALPHA = "the highest 8 bits of each number", "transparency is left out"
_RANGE = "whose black and white are not known; write it with 8 or 16 bits of whole numbers"
MODES: dict[str, tuple[Fate, str]] = {
    "1": ("taken", "0 and 255"),
    "L": ("taken", "8 bits"),
    "RGB": ("taken", "8 bits; of 16 the highest 8"),
    "P": ("translated", "the colours of the palette"),
    "RGBX": ("translated", "without the byte that fills up"),
    "CMYK": ("translated", "255 minus ink, without a profile"),
    "YCbCr": ("translated", "by the matrix of JPEG"),
    "HSV": ("translated", "to red, green and blue"),
    "LA": ("translated", _ALPHA),
    "PA": ("translated", _ALPHA),
    "RGBA": ("translated", _ALPHA),
    "RGBa": ("translated", f"divided by its transparency, then {_ALPHA}"),
    "I;16": ("translated", _HIGH),
    "I;16L": ("translated", _HIGH),
    "I;16B": ("translated", _HIGH),
    "I;16N": ("translated", _HIGH),
    "I": ("refused", f"whole numbers of 32 bits, {_RANGE}"),
    "F": ("refused", f"numbers with fractions, {_RANGE}"),
    "LAB": ("refused", "the colours of Lab; write it in red, green and blue"),
    "La": ("refused", "grey divided by its transparency; write it as PNG"),
}
"""Pillow's mode to what becomes of it; `I` of a PPM file, where it has 16 bits, is taken as `I;16`."""

VERSION = 1
"""Of what is made of a file here: one more when that changes."""
MOST, IDLE = 64 << 30, 86_400
"""How many bytes of arrays may lie in the cache, but for those used within so many seconds."""

Cell = TypeVar("Cell", bound=Path | bytes | tuple[Path | bytes, ...])
Read = TypeVar("Read")
_BITS, _PHOTOMETRIC, _ORIENTATION = 258, 262, 274  # tags of TIFF and EXIF
_log = logging.getLogger(__name__)
_warned: set[str] = set()  # folders


@contextlib.contextmanager
def opened(file: Path | BinaryIO, name: str) -> "Iterator[Image]":
    """Opens an image file of a known format, with one picture, for use in a `with` statement and
    yields the Pillow image; turns every error in reading it into `UserError`.

    Args:
      file: where it is, or its bytes.
      name: what an error calls it.

    Raises:
      UserError: a file that is missing or damaged, no image, or an animation.
    """
    from PIL import Image

    try:
        with Image.open(file, formats=FORMATS) as image:
            if (frames := getattr(image, "n_frames", 1)) > 1 and image.format != "MPO":
                raise UserError(f"{name} has {frames:,} pictures; write the one that counts alone")
            yield image
    except FileNotFoundError as error:
        hint = f"; {alike(file)}" if isinstance(file, Path) else ""
        raise UserError(f"cannot find {name}{hint}") from error
    except (
        *(OSError, ValueError, SyntaxError, EOFError, KeyError, IndexError, TypeError),
        *(struct.error, MemoryError, OverflowError, Image.DecompressionBombError),
    ) as error:
        reason = re.sub(r" '?<_io.*>'?| '.*'", "", str(error).partition("\n")[0])
        raise UserError(
            f"{name} is damaged or no image: {reason or type(error).__name__}"
        ) from error


def read_image(file: Path | BinaryIO, side: int, grey: bool, name: str = "") -> np.ndarray:
    """Reads an image file, called `name` in errors (by default its path), and returns it as uint8
    [H,W,C], upright, resized to side x side unless that is 0.

    Raises:
      UserError: a file that is missing or damaged, no image, or of a mode that is refused.
    """
    name = name or str(file)
    with opened(file, name) as image:
        return resized(pixels(image, name, grey), side)


def pixels(image: "Image", name: str, grey: bool, *, upright: bool = True) -> np.ndarray:
    """Returns the pixels of an open image, uint8 [H,W,1] if `grey`, else [H,W,3], turned by its
    EXIF orientation if `upright`; drops transparency with a warning, and raises `UserError`, with
    the `name`, for a refused mode.

    Raises:
      UserError: damaged, or of a mode that is refused; by `name`.
    """
    from PIL import ImageOps

    image.load()
    fate, note = MODES.get(image.mode, ("refused", "which is not known"))
    if image.mode == "I" and image.format == "PPM":
        fate, note = MODES["I;16"]
    if image.mode == "I;16" and _tag(image, _PHOTOMETRIC, 1) == 0:
        fate, note = "refused", "grey of 16 bits where 0 is white; write it with 0 as black"
    if fate == "refused":
        raise UserError(f"{name} has pixels of the mode {image.mode}: {note}")
    turned = ImageOps.exif_transpose(image) if upright else image
    bytes_only = _highest_bits(turned, _tag(image, _BITS, 16)) if note == _HIGH else turned
    if turned.has_transparency_data:
        colours = bytes_only.convert("RGBA")
        if note == _HIGH or colours.getchannel("A").getextrema()[0] != 255:
            _warn_of_transparency(name)
        bytes_only = colours
    array = np.asarray(bytes_only.convert("L" if grey else "RGB"), np.uint8)
    return array.reshape(*array.shape[:2], -1)


def orientation(image: "Image") -> int:
    """Returns the EXIF orientation of an open image, 1 to 8: 1 is upright, from 5 on height and
    width change places. A number beyond is 1.
    """
    image.load()
    number = image.getexif().get(_ORIENTATION, 1)
    return number if number in range(1, 9) else 1


def check_upright(image: "Image", name: str) -> None:
    """Raises `UserError` if an image has an EXIF orientation that turns it, as annotated positions
    may count before or after turning.
    """
    if (number := orientation(image)) != 1:
        raise UserError(
            f"{name} has the EXIF orientation {number}, and what is told of its pixels may count"
            " before or after turning; write the image upright, without an orientation"
        )


def upright_size(file: Path | BinaryIO, name: str) -> tuple[int, int]:
    """Returns the height and width of an image file; raises `UserError` if its EXIF orientation
    turns it, see `opened` and `check_upright`.
    """
    with opened(file, name) as image:
        check_upright(image, name)
        return image.height, image.width


def resized(
    image: np.ndarray, side: int | tuple[int, int], resample: str = "bilinear"
) -> np.ndarray:
    """Resizes an image, uint8 [H,W,C] with 1 or 3 channels, to side x side pixels, or to (height,
    width) if `side` is a pair, with a Pillow filter; returns it unchanged if `side` is 0.
    """
    from PIL import Image

    if not side:
        return image
    height, width = (side, side) if isinstance(side, int) else side
    pillow = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    small = np.asarray(pillow.resize((width, height), Image.Resampling[resample.upper()]), np.uint8)
    return small.reshape(height, width, -1)


def _highest_bits(image: "Image", bits: int) -> "Image":
    """Converts a grey image of `bits` bits to one of 8, its highest ones."""
    from PIL import Image

    return Image.fromarray((np.asarray(image).astype(np.int32) >> bits - 8).astype(np.uint8))


def _tag(image: "Image", tag: int, other: int) -> int:
    """Returns the number in a tag of a TIFF file, the first of several; `other` if the tag is
    missing.
    """
    value = getattr(image, "tag_v2", {}).get(tag, other)
    return int(value[0] if isinstance(value, tuple) else value)


def _warn_of_transparency(name: str) -> None:
    """Logs a warning that the image `name` has transparent pixels, once per folder of images."""
    folder = name.rpartition("/")[0]
    if folder not in _warned:
        _warned.add(folder)
        _log.warning(
            "%s has transparent pixels; they and others like them are read as opaque, in the"
            " colours stored there",
            name,
        )


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
