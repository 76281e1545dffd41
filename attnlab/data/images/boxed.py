"""Images with all of their objects: a box and a class for each.

In a batch an image has M rows for objects, M the most that an image of its split has: `boxes` are
(row, column, height, width), the middle and the sides as shares of the image, and `labels` k + 1 for
class k and 0 for no object. An image may have none, so `real` is 1 for every image and 0 for a row
of padding.
"""

import hashlib
from typing import Any

import numpy as np

from attnlab.data.columns import Examples
from attnlab.data.dataset import Split
from attnlab.data.images.annotated import AnnotatedData, Boxed
from attnlab.data.images.labelled import check_images, fingerprint
from attnlab.errors import UserError, nearest

Judged = tuple[np.ndarray, np.ndarray, np.ndarray]


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
        count, slots = len(content.images), max(map(len, content.labels))
        numbers = {label: number for number, label in enumerate(content.classes, 1)}
        labels, boxes = np.zeros((count, slots), np.int32), np.zeros((count, slots, 4), np.float32)
        sides = np.tile(np.array(content.images.shape[1:3], np.float64), 2)
        for row, (names, image_boxes) in enumerate(zip(content.labels, content.boxes, strict=True)):
            labels[row, : len(names)] = [numbers[name] for name in names]
            shares = np.asarray(image_boxes, np.float64).reshape(-1, 4) / sides
            boxes[row, : len(names), :2] = shares[:, :2] + shares[:, 2:] / 2
            boxes[row, : len(names), 2:] = shares[:, 2:]
        examples = Examples(
            image=content.images, boxes=boxes, labels=labels, real=np.ones(count, np.int32)
        )
        return Split(_all_boxes(content), examples, fingerprint(content.images, [_digest(content)]))


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
