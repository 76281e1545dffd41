"""From config to images with the class of every pixel, and a folder of images with masks.

In a batch a mask is uint8: 1 for the ground, k + 2 for class k, and 0 for what counts for nothing:
pixels that the source leaves open, and rows of padding. The ground is a class of its own, the first.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.data import SPLITS
from attnlab.data.columns import Examples
from attnlab.data.files import alike
from attnlab.data.images.annotated import Segmented
from attnlab.data.images.folder import ENDINGS, read_image
from attnlab.data.images.labelled import (
    HeldOut,
    Learned,
    Pictures,
    Shape,
    fingerprint,
    giving,
    moments,
)
from attnlab.errors import UserError
from attnlab.records.files import expanded

GROUND = "ground"
OPEN = 255  # in a PNG: pixels without a class, as in PASCAL VOC
MOST = 253  # classes beside the ground, so that a mask is one byte


@dataclass(frozen=True)
class MaskFolder(HeldOut):
    """Images train/images/NAME.png (or .jpg) with masks train/masks/NAME.png, likewise test/ and
    perhaps valid/; without the last a part of training is for validation.

    A mask has one channel, or a palette. Its numbers are 0 for the ground, k for the k-th of
    `classes`, and 255 for pixels that are left open.

    Attributes:
      directory: where these folders lie; "" for the current folder.
      classes: their names, from number 1 on.
      side: height and width to which images and masks are resized; a pixel of a mask takes the class
        of the pixel nearest to its middle.
      grey: one channel of the images instead of three.

    Raises:
      UserError: a number out of range, no classes, or one that is there twice.
    """

    directory: str = ""
    classes: tuple[str, ...] = ("object",)
    side: int = 64
    grey: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.side <= 4096:
            raise UserError(f"config.data.side={self.side} must be in 1 ... 4096")
        if not self.classes:
            raise UserError(
                "config.data.classes is empty; name what the numbers 1, 2, ... of the masks mean"
            )
        if len({GROUND, *self.classes}) <= len(self.classes):
            raise UserError(
                f"config.data.classes={self.classes}: names must differ, also from {GROUND!r}"
            )

    @property
    def shape(self) -> Shape:
        """H, W, C of every image."""
        return self.side, self.side, 1 if self.grey else 3

    def masks(self, split: str) -> Segmented:
        """The images of `split`, each with the class of every pixel, -1 where it is left open.

        Raises:
          UserError: no such folder or no image in it, an image without a mask or of another size, a
            file that cannot be read, or a number that has no class.
        """
        root = expanded(self.directory)
        own = (root / "valid").is_dir()
        folder = root / ("train" if split == "valid" and not own else split)
        files = _images(folder / "images")
        if split != "test" and not own:
            files = [files[row] for row in self.rows(split, len(files))]
        masks = [self._mask(path, folder / "masks" / f"{path.stem}.png") for path in files]
        images = [read_image(path, self.side, self.grey) for path in files]
        return Segmented(np.stack(images), np.stack(masks), self.classes)

    def _mask(self, image: Path, path: Path) -> np.ndarray:
        """The mask of an image, int32 [side,side]."""
        from PIL import Image

        try:
            with Image.open(image) as one, Image.open(path) as other:
                sizes, mode = (one.size, other.size), other.mode
                mask = other.resize((self.side, self.side), Image.Resampling.NEAREST)
        except FileNotFoundError as error:
            raise UserError(f"cannot find {error.filename}; {alike(path)}") from error
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise UserError(
                f"{path} is damaged or no image: {str(error).splitlines()[0]}"
            ) from error
        if sizes[0] != sizes[1]:
            mine, theirs = (f"{height} x {width}" for width, height in reversed(sizes))
            raise UserError(f"{path} is {mine} pixels, its image {theirs}")
        if mode not in ("L", "P", "1", "I", "I;16"):
            raise UserError(f"{path} has the mode {mode}; expected one channel or a palette")
        numbers = np.asarray(mask, np.int32)
        if ((numbers > len(self.classes)) & (numbers != OPEN)).any() or (numbers < 0).any():
            largest = int(numbers[numbers != OPEN].max())
            raise UserError(
                f"{path} has the number {largest}; config.data.classes names 1 ... "
                f"{len(self.classes)}"
            )
        return np.where(numbers == OPEN, -1, numbers)


class SegmentedData(Pictures):
    """The data of a run of segmentation; the columns are "image" and "mask"."""

    def about(self, split: str) -> str:
        """See `Pictures.about`."""
        return super().about(split) + " of pixels"


def source(data: Mapping[str, Any]) -> Any:
    """The source of a config node; `UserError` unless it has masks."""
    return giving(data, "masks", "scenes or mask_folder")


def load(
    data: Mapping[str, Any],
    workdir: Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
) -> SegmentedData:
    """Read the splits of a source. Mean and deviation of the images come from
    `<workdir>/vocabulary/` if they are there. Else they are learned, on the training split and
    nothing else; `SegmentedData.save` keeps them, with the classes.

    Raises:
      UserError: bad config, unreadable data, other classes or sizes than those of training, or what
        was saved is damaged.
    """
    of, where = source(data), f"config.data={data['name']}"
    known = workdir is not None and SegmentedData.saved(workdir)
    found = {
        split: _checked(of.masks(split), f"{where}: the {split} split")
        for split in SPLITS
        if split in splits or (split == "train" and not known)
    }
    if known:
        assert workdir is not None
        learned = Learned.load(workdir)
    else:
        images, _, classes = found["train"]
        learned = Learned((GROUND, *classes), images.shape[1:], *moments(images))
    for split, one in found.items():
        _check_like(learned, one, f"{where}: the {split} split")
    chosen = {split: found[split] for split in splits}
    return SegmentedData(
        {
            split: Examples(image=one.images, mask=(one.masks + 1).astype(np.uint8))
            for split, one in chosen.items()
        },
        learned,
        {split: fingerprint(one.images, [_digest(one.masks)]) for split, one in chosen.items()},
    )


def _checked(given: Segmented, where: str) -> Segmented:
    """What a source gave, once it is as agreed."""
    images, masks, classes = given
    if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
        raise UserError(
            f"{where} has {images.dtype} {list(images.shape)}; expected uint8 [N,H,W,C], N at least 1"
        )
    if masks.shape != images.shape[:3]:
        raise UserError(
            f"{where} has masks {list(masks.shape)} for images {list(images.shape)}; expected one"
            " number for each pixel"
        )
    if not 1 <= len(classes) <= MOST:
        raise UserError(f"{where} has {len(classes)} classes; expected 1 to {MOST}")
    if masks.min() < -1 or masks.max() > len(classes):
        raise UserError(
            f"{where} has masks of numbers {masks.min()} ... {masks.max()}; expected -1 (left open)"
            f" ... {len(classes)}"
        )
    return given


def _check_like(learned: Learned, given: Segmented, where: str) -> None:
    """`UserError` unless a split has the sizes and classes of training."""
    if given.images.shape[1:] != learned.shape:
        mine, theirs = (
            " x ".join(map(str, one)) for one in (given.images.shape[1:], learned.shape)
        )
        raise UserError(f"{where} has images of {mine}, the training split of {theirs}")
    if (GROUND, *given.classes) != learned.classes:
        raise UserError(
            f"{where} has the classes {', '.join(given.classes)}, training"
            f" {', '.join(learned.classes[1:])}"
        )


def _digest(masks: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(masks, np.int32).tobytes()).hexdigest()


def _images(folder: Path) -> list[Path]:
    """The image files of a folder, in the order of their names."""
    if not folder.is_dir():
        raise UserError(f"cannot find the folder {folder}; {alike(folder)}")
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)
    found = [path for path in found if path.name[0] != "."]
    if not found:
        raise UserError(f"{folder}{os.sep} has no image ({', '.join(ENDINGS)})")
    return found
