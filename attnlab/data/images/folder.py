"""Images in folders, one for each class: train/CLASS/*.png, test/CLASS/*.jpg."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnlab.data.files import alike
from attnlab.data.images.labelled import HeldOut, Labelled, Shape
from attnlab.errors import UserError
from attnlab.records.files import expanded

ENDINGS = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True)
class ImageFolder(HeldOut):
    """PNG and JPEG files below train/CLASS, test/CLASS and perhaps valid/CLASS; without the last a
    part of training is for validation. Other files are left out.

    Attributes:
      directory: where these folders lie; "" for the current folder.
      side: height and width to which every image is resized, in pixels; 0 leaves images as they
        are, which must then have one size.
      grey: one channel instead of three.

    Raises:
      UserError: a number out of range.
    """

    directory: str = ""
    side: int = 32
    grey: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.side <= 4096:
            raise UserError(f"config.data.side={self.side} must be in 0 ... 4096")

    @property
    def shape(self) -> Shape | None:
        """H, W, C of every image; None where that is not known before they are read."""
        return (self.side, self.side, 1 if self.grey else 3) if self.side else None

    def images(self, split: str) -> Labelled:
        """The images of `split`, each with the name of its folder.

        Raises:
          UserError: no folder for the split or no class in it, a class without an image, a file
            that cannot be read, or images of different sizes.
        """
        root = expanded(self.directory)
        own = (root / "valid").is_dir()
        files = _files(root / ("train" if split == "valid" and not own else split))
        if split != "test" and not own:
            files = [files[row] for row in self.rows(split, len(files))]
        found = [(path, read_image(path, self.side, self.grey)) for path in files]
        first, image = found[0]
        for path, other in found:
            if other.shape != image.shape:
                mine, theirs = (f"{one.shape[0]} x {one.shape[1]}" for one in (other, image))
                raise UserError(
                    f"{path} is {mine} pixels, {first} {theirs}; set config.data.side to resize all"
                )
        return Labelled(
            np.stack([image for _, image in found]), [path.parent.name for path, _ in found]
        )


def read_image(path: Path, side: int, grey: bool) -> np.ndarray:
    """An image file as uint8 [H,W,C], resized to side x side unless that is 0.

    Raises:
      UserError: a file that is missing or damaged, or no image.
    """
    from PIL import Image

    try:
        with Image.open(path) as opened:
            image = opened.convert("L" if grey else "RGB")
    except FileNotFoundError as error:
        raise UserError(f"cannot find {path}; {alike(path)}") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise UserError(f"{path} is damaged or no image: {str(error).splitlines()[0]}") from error
    return resized(np.asarray(image, np.uint8).reshape(image.height, image.width, -1), side)


def resized(image: np.ndarray, side: int) -> np.ndarray:
    """An image, uint8 [H,W,C] with 1 or 3 channels, as side x side pixels, bilinear; as it is if
    `side` is 0.
    """
    from PIL import Image

    if not side:
        return image
    whole = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    small = np.asarray(whole.resize((side, side), Image.Resampling.BILINEAR), np.uint8)
    return small.reshape(side, side, -1)


def read_images(names: Sequence[str], shape: Shape) -> np.ndarray:
    """Image files by name, resized to images of training of this shape, uint8 [N,H,W,C].

    Raises:
      UserError: a file that is no image, or images of training that have another form than files
        are resized to.
    """
    height, width, channels = shape
    if height != width or channels not in (1, 3):
        raise UserError(
            f"images of {height} x {width} x {channels} are not made of files; expected square"
            " ones with 1 or 3 channels in training"
        )
    return np.stack([read_image(expanded(name.strip()), height, channels == 1) for name in names])


def _files(folder: Path) -> list[Path]:
    """The image files of all classes, in the order of their names."""
    if not folder.is_dir():
        raise UserError(f"cannot find the folder {folder}; {alike(folder)}")
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    if not classes:
        raise UserError(f"{folder} has no folder for a class; expected {folder}{os.sep}CLASS")
    found = []
    for one in classes:
        files = sorted(path for path in one.iterdir() if path.suffix.lower() in ENDINGS)
        files = [path for path in files if path.name[0] != "."]
        if not files:
            raise UserError(f"{one} has no image ({', '.join(ENDINGS)}); fill it or remove it")
        found += files
    return found
