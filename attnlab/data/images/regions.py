"""What is where in an image: all of its objects, a box and a class for each, or the class of every
pixel, also from a folder of images with masks.

In a batch an image has M rows for objects, M the most that an image of its split has: `boxes` are
(row, column, height, width), the middle and the sides as shares of the image, and `labels` k + 1 for
class k and 0 for no object. An image may have none, so `real` is 1 for every image and 0 for a row
of padding. A mask is uint8: 1 for the ground, k + 2 for class k, and 0 for what counts for nothing:
pixels that the source leaves open, and rows of padding. The ground is a class of its own, the first.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from attnlab.data.columns import Examples
from attnlab.data.dataset import Row, Split
from attnlab.data.images.annotated import Boxed, Pictures, Segmented, check_images, fingerprint
from attnlab.data.images.files import ImageFiles, image_files
from attnlab.data.learned import Learned
from attnlab.data.readers.images import Named, check_upright, decoded, opened, upright_size
from attnlab.errors import UserError, nearest

GROUND = "ground"
OPEN = 255  # in a PNG: pixels without a class, as in PASCAL VOC
MOST = 253  # classes beside the ground, so that a mask is one byte
Judged = tuple[np.ndarray, np.ndarray, np.ndarray]


class AnnotatedData(Pictures[Row]):
    """Base of the data of runs that learn what is where in an image: a source gives `Boxed` or
    `Segmented`. Not the data of one by itself.

    Attributes:
      ground: classes that stand before those of the source.
    """

    ground: ClassVar[tuple[str, ...]] = ()

    def learn(self, by_split: Mapping[str, Boxed | Segmented]) -> Learned:
        """Returns a `Learned` with the shape, mean and deviation of the training images, and the
        classes, `ground` first. See `Dataset.learn`.
        """
        train = by_split["train"]
        return Learned().with_images(train.images, (*self.ground, *train.classes))

    def check_learned(self, content: Boxed | Segmented, split: str) -> None:
        """Raises `UserError` if the images of a split differ in shape from those of training, or
        its classes in names or order.
        """
        self.learned.check(content.images, self.where(split))
        if (*self.ground, *content.classes) != self.learned.classes:
            raise UserError(
                f"{self.where(split)} has the classes {', '.join(content.classes)},"
                f" training {', '.join(self.learned.classes[len(self.ground) :])}"
            )


class BoxedData(AnnotatedData[Judged]):
    """The data of a run of detection; the columns are "image", "boxes", "labels" and "real", rows
    have all M objects and crowd regions of an image: boxes [M,4] as in a batch but in float64, class
    [M] from 0, and which are crowd regions [M] bool.
    """

    method = "objects"
    such_as = "scenes or coco_boxes"

    def about(self, split: str) -> str:
        """Returns one line of text about a split: the number and size of images, the numbers of
        classes and of objects, and the most objects of one image. See `Pictures.about`.
        """
        labels = self.labels(split)
        counts = (labels > 0).sum(axis=1)
        return super().about(split) + f"; {counts.sum():,} objects, up to {counts.max()} of one"

    def labels(self, split: str) -> np.ndarray:
        """Class + 1 of each object, 0 for none: [N,M]."""
        return self.examples[split]["labels"].block(np.arange(self.size(split)), 1)

    def boxes(self, split: str) -> np.ndarray:
        """The boxes of the objects, [N,M,4]."""
        return self.examples[split]["boxes"].block(np.arange(self.size(split)), 1)

    def most_objects(self, split: str) -> int:
        """How many objects an image of the split has at most."""
        return int((self.labels(split) > 0).sum(axis=1).max())

    def checked(self, content: Boxed, split: str) -> Boxed:
        """Returns the images and boxes of a split unchanged; raises `UserError` for bad images, no
        object at all, unequal counts, an unknown label, or a box outside its image. See
        `Dataset.checked`.
        """
        where, (images, labels, boxes, classes, unlearned) = self.where(split), content
        check_images(images, where)
        if not classes or not any(len(names) for names in labels):
            raise UserError(f"{where} has no object; there is nothing to find")
        if not len(images) == len(labels) == len(boxes) == len(unlearned or images):
            raise UserError(
                f"{where} has {len(images)} images, {len(labels)} lists of labels, {len(boxes)} of"
                f" boxes and {len(unlearned)} of what is not learned"
            )
        for label in {label for image in unlearned for label, _, _ in image} - {*classes}:
            raise UserError(f"{where} has a crowd of {label!r}; {nearest(label, classes)}")
        height, width = images.shape[1:3]
        for number, (image_boxes, image_labels) in enumerate(zip(boxes, labels, strict=True), 1):
            if len(image_boxes) != len(image_labels):
                raise UserError(
                    f"{where}: image {number} has {len(image_labels)} labels and {len(image_boxes)} boxes"
                )
            for label, (row, column, high, broad) in zip(image_labels, image_boxes, strict=True):
                is_inside = (
                    row >= 0 and column >= 0 and row + high <= height and column + broad <= width
                )
                if not is_inside or min(high, broad) <= 0:
                    raise UserError(
                        f"{where}: the box of {label!r} in image {number} (row {row}, column {column},"
                        f" {high} high, {broad} wide) is not within {height} x {width} pixels"
                    )
                if label not in classes:
                    raise UserError(
                        f"{where}: image {number} has the label {label!r}; {nearest(label, classes)}"
                    )
        return content

    def encoded(self, content: Boxed, split: str) -> Split:
        """Encodes a split of images with at most M objects as a `Split` with the columns "image",
        "boxes" [N,M,4] (row and column of the middle, height, width, as shares of the image),
        "labels" [N,M] (class + 1, 0 for none) and "real" [N] ones. See `Dataset.encoded`.
        """
        self.check_learned(content, split)
        rows, count, slots = _all_boxes(content), len(content.images), max(map(len, content.labels))
        labels, boxes = np.zeros((count, slots), np.int32), np.zeros((count, slots, 4), np.float32)
        for row, (names, judged) in enumerate(zip(content.labels, rows, strict=True)):
            boxes[row, : len(names)] = judged[0][: len(names)]
            labels[row, : len(names)] = judged[1][: len(names)] + 1
        examples = Examples(
            image=content.images, boxes=boxes, labels=labels, real=np.ones(count, np.int32)
        )
        return Split(rows, examples, fingerprint(content.images, [_digest(content)]))


def _all_boxes(content: Boxed) -> list[Judged]:
    """Returns a list with a tuple for each image: boxes [M,4] (row and column of the middle, height,
    width, as shares of the image), class numbers [M] from 0 and crowd flags [M] of all its objects,
    also of those not learned, for scoring.
    """
    numbers = {label: number for number, label in enumerate(content.classes)}
    sides, judged = np.tile(np.array(content.images.shape[1:3], np.float64), 2), []
    for row, (names, image_boxes) in enumerate(zip(content.labels, content.boxes, strict=True)):
        unlearned = content.unlearned[row] if content.unlearned else ()
        boxes = np.concatenate(
            [
                np.asarray(part, np.float64).reshape(-1, 4)
                for part in (image_boxes, *(box for _, box, _ in unlearned))
            ]
        )
        boxes[:, :2] += boxes[:, 2:] / 2
        classes = [numbers[name] for name in (*names, *(name for name, _, _ in unlearned))]
        crowd = [*(False for _ in names), *(crowd for _, _, crowd in unlearned)]
        judged.append((boxes / sides, np.array(classes, int), np.array(crowd, bool)))
    return judged


def _digest(boxed: Boxed) -> str:
    """Returns the SHA-256 (hex) of the labels and boxes of all images, those of unlearned objects
    included.
    """
    content: list[Any] = [
        (list(names), np.asarray(image_boxes, np.float64).tolist())
        for names, image_boxes in zip(boxed.labels, boxed.boxes, strict=True)
    ]
    if any(boxed.unlearned):
        content += [
            [(name, np.asarray(box, np.float64).tolist(), crowd) for name, box, crowd in image]
            for image in boxed.unlearned
        ]
    return hashlib.sha256(repr(content).encode()).hexdigest()


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
