"""Images in one file: IDX, the form of MNIST and Fashion-MNIST, and NumPy's .npz."""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnlab.data.files import contents, find_file
from attnlab.data.images.labelled import HeldOut, Labelled
from attnlab.errors import UserError, nearest
from attnlab.records import items
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
