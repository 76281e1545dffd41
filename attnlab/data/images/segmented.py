"""Images with the class of every pixel, and a folder of images with masks.

In a batch a mask is uint8: 1 for the ground, k + 2 for class k, and 0 for what counts for nothing:
pixels that the source leaves open, and rows of padding. The ground is a class of its own, the first.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attnlab.data.columns import Examples
from attnlab.data.dataset import Split
from attnlab.data.images.annotated import AnnotatedData, Segmented
from attnlab.data.images.decoded import decoded
from attnlab.data.images.folder import ImageFiles, image_files
from attnlab.data.images.labelled import check_images, fingerprint
from attnlab.data.readers.images import Named, check_upright, opened, upright_size
from attnlab.errors import UserError

GROUND = "ground"
OPEN = 255  # in a PNG: pixels without a class, as in PASCAL VOC
MOST = 253  # classes beside the ground, so that a mask is one byte


@dataclass(frozen=True)
class MaskFolder(ImageFiles):
    """Images train/images/NAME.png (or .jpg) with masks train/masks/NAME.png, likewise test/ and
    perhaps valid/; without the last a part of training is for validation.

    A mask has one channel, or a palette. Its numbers are 0 for the ground, k for the k-th of
    `classes`, and 255 for pixels that are left open. An image or a mask with an EXIF orientation is
    refused: nobody knows whether the two were made before or after turning.

    Attributes:
      directory: where these folders lie; "" for the current folder.
      classes: their names, from number 1 on.
      side: height and width to which images and masks are resized; a pixel of a mask takes the class
        of the pixel nearest to its middle.
      grey: one channel of the images instead of three.

    Raises:
      UserError: a number out of range, no classes, or one that is there twice.
    """

    classes: tuple[str, ...] = ("object",)

    def __post_init__(self) -> None:
        """Raises `UserError` if `classes` is empty, or has a name twice or the name "ground",
        besides the checks of `ImageFiles`.
        """
        super().__post_init__()
        check_classes(self.classes)

    def masks(self, split: str) -> Segmented:
        """Reads the images of `split` and their masks and returns them as `Segmented`, with the
        class of every pixel (0 for the ground, -1 for unlabelled ones) and the configured class
        names; without a folder "valid", some training images are held out for it.

        Raises:
          UserError: no such folder or no image in it, an image without a mask or of another size, a
            file that cannot be read, or a number that has no class.
        """
        folder, own = self.place(split)
        files = self.part(split, image_files(folder / "images"), own)
        pairs = [(path, folder / "masks" / f"{path.stem}.png") for path in files]

        def read(pair: tuple[Path, Path]) -> np.ndarray:
            """Reads the mask of an image."""
            image, mask = ((path, str(path)) for path in pair)
            return read_mask(image, mask, len(self.classes), self.side)

        masks = decoded(pairs, read, ("mask", len(self.classes), self.side))
        return Segmented(self.read_all(files), masks, self.classes)


def check_classes(classes: tuple[str, ...]) -> None:
    """Raises `UserError` if the tuple of class names is empty, has a name twice or has the name
    "ground".
    """
    if not classes:
        raise UserError(
            "config.data.classes is empty; name what the numbers 1, 2, ... of the masks mean"
        )
    if len({GROUND, *classes}) <= len(classes):
        raise UserError(f"config.data.classes={classes}: names must differ, also from {GROUND!r}")


def read_mask(image: Named, mask: Named, classes: int, side: int) -> np.ndarray:
    """Reads the mask of an image, both given as (file, name for errors), and returns its class
    numbers as int32 [side,side] ([H,W] for side 0), -1 at pixels left open; raises `UserError` if
    its size is not that of the image or a number is above `classes`.

    Args:
      image: where it is, or its bytes, and what an error calls it.
      mask: the same of its mask.
      classes: how many there are beside the ground.
      side: height and width to which the mask is resized; 0 leaves it.

    Raises:
      UserError: a file that cannot be read or has an EXIF orientation, a mask of another size than
        its image, of several channels, or with a number that no class has.
    """
    height, width = upright_size(*image)
    name = mask[1]
    with opened(*mask) as stored:
        check_upright(stored, name)
        if stored.size != (width, height):
            size = f"{stored.height} x {stored.width}"
            raise UserError(f"{name} is {size} pixels, its image {height} x {width}")
        if stored.mode not in ("L", "P", "1", "I", "I;16"):
            raise UserError(f"{name} has the mode {stored.mode}; expected one channel or a palette")
        # 0: the nearest, Pillow's Resampling.NEAREST.
        numbers = np.asarray(stored.resize((side, side), 0) if side else stored, np.int32)
    if ((numbers > classes) & (numbers != OPEN)).any() or (numbers < 0).any():
        largest = int(numbers[numbers != OPEN].max())
        raise UserError(
            f"{name} has the number {largest}; config.data.classes names 1 ... {classes}"
        )
    return np.where(numbers == OPEN, -1, numbers)


class SegmentedData(AnnotatedData[int]):
    """The data of a run of segmentation; the columns are "image" and "mask", rows are numbers."""

    method = "masks"
    such_as = "scenes or mask_folder"
    ground = (GROUND,)

    def about(self, split: str) -> str:
        """See `Pictures.about`."""
        return super().about(split) + " of pixels"

    def checked(self, content: Segmented, split: str) -> Segmented:
        """Returns the images and masks of a split unchanged; raises `UserError` for bad images or
        number of classes, or unless the masks are [N,H,W] with numbers from -1 to that of the last
        class and a labelled pixel. See `Dataset.checked`.
        """
        where, (images, masks, classes) = self.where(split), content
        check_images(images, where)
        if masks.shape != images.shape[:3]:
            raise UserError(
                f"{where} has masks {list(masks.shape)} for images {list(images.shape)}; expected"
                " one number for each pixel"
            )
        if not 1 <= len(classes) <= MOST:
            raise UserError(f"{where} has {len(classes)} classes; expected 1 to {MOST}")
        if masks.min() < -1 or masks.max() > len(classes):
            raise UserError(
                f"{where} has masks of numbers {masks.min()} ... {masks.max()}; expected -1 (left"
                f" open) ... {len(classes)}"
            )
        if masks.max() < 0:
            raise UserError(f"{where} has no pixel that counts: all are left open")
        return content

    def encoded(self, content: Segmented, split: str) -> Split:
        """Encodes a split as a `Split` with the columns "image" and "mask" (uint8, class number +
        1, 0 for unlabelled pixels); raises `UserError` if classes or sizes differ from training.
        See `Dataset.encoded`.
        """
        self.check_learned(content, split)
        images, masks = content.images, np.ascontiguousarray(content.masks, np.int32)
        digest = hashlib.sha256(masks.tobytes()).hexdigest()
        examples = Examples(image=images, mask=(content.masks + 1).astype(np.uint8))
        return Split(range(len(images)), examples, fingerprint(images, [digest]))
