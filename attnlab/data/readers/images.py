"""Image files that somebody else wrote, as bytes [H,W,C] with one channel or three.

What becomes of each kind of pixels stands in `MODES`. Only the first 8 of 16 bits are kept, as
Pillow does with colours. Transparency is left out: a pixel has the colour that is stored for it,
as torchvision and TensorFlow's decoders have it, and a line says so once. An EXIF orientation is
applied unless the caller asks for the pixels as they are stored; Pillow itself always applies that
of a TIFF file. Animations are refused, of a photo with several pictures (MPO) the first counts.
"""

import contextlib
import logging
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import numpy as np

from attnlab.data.files import alike
from attnlab.errors import UserError

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


def read_image(path: Path, side: int, grey: bool) -> np.ndarray:
    """Reads an image file and returns it as uint8 [H,W,C], upright, resized to side x side unless
    that is 0.

    Raises:
      UserError: a file that is missing or damaged, no image, or of a mode that is refused.
    """
    with opened(path, str(path)) as image:
        return resized(pixels(image, str(path), grey), side)


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
