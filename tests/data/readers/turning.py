"""Image files with an EXIF orientation."""

from pathlib import Path
from typing import Any

from PIL import Image


def turned(path: Path, number: int, **saved: Any) -> None:
    """Writes an image file again, to be turned."""
    with Image.open(path) as image:
        image.load()  # which turns TIFF
        exif = image.getexif()
        exif[274] = number
        image.save(path, exif=exif, **saved)
