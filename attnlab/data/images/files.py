"""Images with labels in files: IDX, the form of MNIST and Fashion-MNIST; NumPy's .npz; and folders, one
for each class: train/CLASS/*.png, test/CLASS/*.jpg.
"""

import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from attnlab.data.files import HERE, alike, contents, find_file
from attnlab.data.images.annotated import HeldOut, Labelled, Resized
from attnlab.data.learned import Shape
from attnlab.data.readers.images import decoded, read_image, resized, stacked
from attnlab.errors import UserError, nearest
from attnlab.records import items
from attnlab.records.files import expanded
from attnlab.records.json_kinds import Damaged

_BYTES = 8  # the type of an IDX file of unsigned bytes


@dataclass(frozen=True)
class Idx(HeldOut):
    """IDX files, plain, .gz or .xz: one of images [N,H,W] or [N,H,W,C] and one of labels [N] for
    training, and two for the test. By default the names of MNIST and Fashion-MNIST.

    An IDX file begins with two bytes 0, the type (8, unsigned bytes) and the number of axes; then
    the size of each axis in four bytes, the highest first; then the numbers, the last axis fastest
    (Y. LeCun, C. Cortes, C. Burges, "The MNIST Database of Handwritten Digits", 1998).

    Attributes:
      directory: where the files lie; "" for the current folder.
      train_images, train_labels, test_images, test_labels: their names.
    """

    directory: str = ""
    train_images: str = "train-images-idx3-ubyte"
    train_labels: str = "train-labels-idx1-ubyte"
    test_images: str = "t10k-images-idx3-ubyte"
    test_labels: str = "t10k-labels-idx1-ubyte"

    def images(self, split: str) -> Labelled:
        """Reads the IDX files of `split` and returns as `Labelled` its images [N,H,W,C], each with
        its label; those of "train" and "valid" are separate parts of the training files.

        Raises:
          UserError: a file that is missing, damaged or no IDX file of unsigned bytes, or as many
            labels as there are no images.
        """
        prefix = "test" if split == "test" else "train"
        paths = [
            find_file(self.directory, getattr(self, f"{prefix}_{kind}"))
            for kind in ("images", "labels")
        ]
        images, labels = read_idx(paths[0], (3, 4)), read_idx(paths[1], (1,))
        if len(images) != len(labels):
            raise UserError(
                f"{paths[0]} has {len(images):,} images, {paths[1]} {len(labels):,} labels; they"
                " are not of one set"
            )
        rows = self.part(split, range(len(images)), own=False)
        return Labelled(with_channels(images)[rows], labels[rows])


@dataclass(frozen=True)
class Npz(HeldOut):
    """A .npz file with the arrays x_train, y_train, x_test and y_test, and perhaps x_valid and
    y_valid: images uint8 [N,H,W] or [N,H,W,C], labels [N] or [N,1], whole numbers or names.

    Attributes:
      directory: where the file lies; "" for the current folder.
      file: the name of the .npz file.
    """

    directory: str = ""
    file: str = "images.npz"

    def images(self, split: str) -> Labelled:
        """Reads the arrays of `split` from the .npz file and returns as `Labelled` its images
        [N,H,W,C], each with its label; without x_valid, some of the training images are held out
        for "valid".

        Raises:
          UserError: a file that is missing or damaged, without one of the arrays, with arrays of
            another kind, or with as many labels as there are no images.
        """
        path = find_file(self.directory, self.file)
        arrays = arrays_of(path)
        suffix = "train" if split == "valid" and "x_valid" not in arrays else split
        images, labels = (array_of(arrays, path, f"{axis}_{suffix}") for axis in "xy")
        channels_first = images.ndim == 4 and images.shape[3] > 4 and images.shape[1] in (1, 3)
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or channels_first:
            raise UserError(
                f"{path}: x_{suffix} is {images.dtype} {list(images.shape)}; expected uint8 [N,H,W] or"
                " [N,H,W,C]"
            )
        labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
        if labels.ndim != 1 or labels.dtype.kind not in "iuU":
            raise UserError(
                f"{path}: y_{suffix} is {labels.dtype} {list(labels.shape)}; expected whole numbers or"
                " names, [N] or [N,1]"
            )
        if len(images) != len(labels):
            raise UserError(
                f"{path}: x_{suffix} has {len(images):,} images, y_{suffix} {len(labels):,} labels"
            )
        own_split = split != "valid" and "x_valid" in arrays
        rows = self.part(split, range(len(images)), own_split or suffix == "valid")
        return Labelled(with_channels(images)[rows], labels[rows])


def read_idx(path: Path, axes: tuple[int, ...]) -> np.ndarray:
    """Reads an IDX file of unsigned bytes and returns its array, uint8; raises `UserError` unless
    its type is right, its number of axes is in `axes` and its length fits.

    Args:
      path: of the file.
      axes: how many axes it may have.

    Raises:
      UserError: another magic number or number of axes, or more or fewer bytes than it says.
    """
    content = contents(path)
    magic = content[:4]
    expected = " or ".join(f"0x{_BYTES << 8 | number:08x}" for number in axes)
    if len(magic) < 4 or magic[:3] != bytes([0, 0, _BYTES]) or magic[3] not in axes:
        raise UserError(
            f"{path} begins with 0x{magic.hex()}; an IDX file of unsigned bytes with"
            f" {' or '.join(map(str, axes))} axes begins with {expected}"
        )
    begin = 4 + 4 * magic[3]
    if len(content) < begin:
        raise UserError(f"{path} is damaged: it ends after {len(content)} bytes")
    sizes = tuple(np.frombuffer(content[4:begin], ">u4").tolist())
    if len(content) - begin != math.prod(sizes):
        says = " x ".join(map(str, sizes))
        raise UserError(
            f"{path} is damaged: it says that it has {says} numbers, and has"
            f" {len(content) - begin:,}"
        )
    return np.frombuffer(content, np.uint8, offset=begin).reshape(sizes)


def with_channels(images: np.ndarray) -> np.ndarray:
    """Images [N,H,W,C]; grey ones, [N,H,W], have one channel."""
    return images if images.ndim == 4 else images[..., None]


def arrays_of(path: Path) -> dict[str, np.ndarray]:
    """Reads a .npz file and returns its arrays by name.

    Raises:
      UserError: it is damaged, or no such file.
    """
    try:
        return items.arrays_of(contents(path))
    except Damaged as error:
        raise UserError(f"{path} is damaged or {error}") from error


def array_of(arrays: dict[str, np.ndarray], path: Path, name: str) -> np.ndarray:
    """Returns the array called `name` of those in a file; raises `UserError`, with near names, if
    it has none.
    """
    if name not in arrays:
        raise UserError(f"{path} has no array {name!r}; {nearest(name, arrays)}")
    return arrays[name]


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
