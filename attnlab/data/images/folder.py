"""Images in folders, one for each class: train/CLASS/*.png, test/CLASS/*.jpg."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from attnlab.data.files import HERE, alike
from attnlab.data.images.decoded import decoded, stacked
from attnlab.data.images.labelled import HeldOut, Labelled, Resized
from attnlab.data.learned import Shape
from attnlab.data.readers.images import read_image, resized
from attnlab.errors import UserError
from attnlab.records.files import expanded

ENDINGS = (".png", ".jpg", ".jpeg")


@dataclass(frozen=True)
class ImageFiles(Resized, HeldOut):
    """Base of the sources whose images are files of any size.

    Attributes:
      directory: where the files lie, or their folders; "" for the current folder.
      side: height and width to which every image is resized, in pixels.
      grey: whether images are read in grey: one channel instead of three.

    Raises:
      UserError: a number out of range.
    """

    least = 1

    directory: str = ""
    side: int = 64
    grey: bool = False

    def read(self, path: Path) -> np.ndarray:
        """See `read_image`."""
        return read_image(path, self.side, self.grey)

    def read_all(
        self, paths: Sequence[Path], read: Callable[[Path], np.ndarray] | None = None
    ) -> np.ndarray:
        """Returns the image files `paths` as uint8 [N,H,W,C], each read by `read` (by default the
        method `read`), with the cache of `decoded`; for a class defined outside of attnlab without
        the cache.
        """
        read = read or self.read
        if not type(self).__module__.startswith("attnlab."):
            return stacked([(path, read(path)) for path in paths])
        settings = [getattr(self, name, "") for name in ("side", "grey", "resize", "resample")]
        return decoded(paths, read, settings)

    def place(self, split: str) -> tuple[Path, bool]:
        """Returns the folder of a split (that of training if there is none for validation), and
        whether a folder for validation exists.
        """
        root = expanded(self.directory)
        own = (root / "valid").is_dir()
        return root / ("train" if split == "valid" and not own else split), own


@dataclass(frozen=True)
class ImageFolder(ImageFiles):
    """PNG and JPEG files below train/CLASS, test/CLASS and perhaps valid/CLASS; without the last a
    part of training is for validation. Other files are left out.

    Attributes:
      directory: where these folders lie; "" for the current folder.
      side: height and width to which every image is resized, in pixels; 0 leaves images as they
        are, which must then have one size.
      resize: to (height, width) instead, or (pixels,) of the shorter side alone, of which the
        middle, side x side, is read; all of it if `side` is 0.
      resample: the filter of Pillow that does it.
    """

    least = 0

    side: int = 32
    resize: tuple[int, ...] = ()
    resample: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] = "bilinear"

    def __post_init__(self) -> None:
        """Raises `UserError` unless `resize` is empty, (height, width), or with a `side` one
        number, each from `side` to 4096, besides the checks of `ImageFiles`.
        """
        super().__post_init__()
        least = max(self.side, 1)
        invalid = not all(least <= side <= 4096 for side in self.resize) or len(self.resize) > 2
        if invalid or (len(self.resize) == 1 and not self.side):
            raise UserError(
                f"config.data.resize={self.resize} must be (), (height, width), or with a side one"
                f" number alone, each in {least} ... 4096"
            )

    @property
    def shape(self) -> Shape | None:
        """Returns the shape (H, W, C) of every image as the settings resize it; None if that is
        known only after reading. See `ImageFiles.shape`.
        """
        if self.side or not self.resize:
            return super().shape
        return (*self.resize, 1 if self.grey else 3)  # type: ignore[return-value]

    def read(self, path: Path) -> np.ndarray:
        """See `read_image`."""
        return self.fitted(read_image(path, 0, self.grey))

    def fitted(self, image: np.ndarray) -> np.ndarray:
        """Resizes an image, uint8 [H,W,C], to `resize` (height and width, or the shorter side; empty:
        side x side) and returns its centre crop of side x side pixels; if `side` is 0 all of it.
        """
        size: tuple[int, ...] = self.resize or (self.side, self.side)
        if len(size) == 1:  # the longer side as torchvision and transformers round it
            short = min(image.shape[:2])
            size = tuple(int(size[0] * side / short) for side in image.shape[:2])
        image = resized(image, (size[0], size[1]) if size[0] else 0, self.resample)
        top, left = ((side - self.side) // 2 for side in image.shape[:2])
        if not self.side:
            return image
        return image[top : top + self.side, left : left + self.side]

    def images(self, split: str) -> Labelled:
        """Reads the images of `split` and returns them as `Labelled`, resized, each labelled with the
        name of its folder; without a folder "valid", some training images are held out for it.

        Raises:
          UserError: no folder for the split or no class in it, a class without an image, a file
            that cannot be read, or images of different sizes.
        """
        folder, own = self.place(split)
        files = self.part(split, _files(folder), own)
        return Labelled(self.read_all(files), [path.parent.name for path in files])


def read_images(
    names: Iterable[str], shape: Shape, fitted: Callable[[np.ndarray], np.ndarray] = np.asarray
) -> np.ndarray:
    """Reads the image files `names`, applies `fitted` to each, and returns them as uint8 [N,H,W,C],
    resized to `shape`, the (H, W, C) of the training images; raises `UserError` unless C is 1 or 3.

    Raises:
      UserError: a file that is no image, or images of training that have neither 1 nor 3 channels.
    """
    *size, channels = shape
    if channels not in (1, 3):
        raise UserError(
            f"images of training have {channels} channels, a file has 1 or 3; maps of images of the"
            " test split are in the folder maps of the run"
        )
    images = [fitted(read_image(expanded(name.strip()), 0, channels == 1)) for name in names]
    return np.stack([resized(image, (size[0], size[1])) for image in images])


def image_files(folder: Path, advice: str = "fill it") -> list[Path]:
    """Returns the PNG and JPEG files in a folder, hidden ones excluded, sorted by name; raises
    `UserError`, with `advice`, if there is no image in it, or if there is no such folder.
    """
    check_folder(folder)
    images = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)
    files = [path for path in images if path.name[0] != "."]
    if not files:
        raise UserError(f"{folder} has no image ({', '.join(ENDINGS)}); {advice}")
    return files


def check_folder(folder: Path) -> None:
    """Raises `UserError`, with near names, if there is no such folder."""
    if not folder.is_dir():
        folder_hint = HERE if folder.parent == Path() else ""
        raise UserError(f"cannot find the folder {folder}{folder_hint}; {alike(folder)}")


def _files(folder: Path) -> list[Path]:
    """Returns the image files of all class folders in a folder, sorted by class and name; raises
    `UserError` for no class folder, or one without images.
    """
    check_folder(folder)
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    if not classes:
        raise UserError(f"{folder} has no folder for a class; expected {folder}{os.sep}CLASS")
    return [path for kind in classes for path in image_files(kind, "fill it or remove it")]
