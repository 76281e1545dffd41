"""Images with all of their objects: a box and a class for each.

In a batch an image has M rows for objects, M the most that an image of its split has: `boxes` are
(row, column, height, width), the middle and the sides as shares of the image, and `labels` k + 1 for
class k and 0 for no object. An image may have none, so `real` is 1 for every image and 0 for a row
of padding.
"""

from __future__ import annotations

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
        """Returns one line of text about a split: the number and size of images, and the numbers of
        classes and objects. See `Pictures.about`.
        """
        labels = self.labels(split)
        counts = (labels > 0).sum(axis=1)
        return super().about(split) + f"; {counts.sum():,} objects, up to {self.most(split)} of one"

    def labels(self, split: str) -> np.ndarray:
        """Class + 1 of each object, 0 for none: [N,M]."""
        return self.examples[split]["labels"].block(np.arange(self.size(split)), 1)

    def boxes(self, split: str) -> np.ndarray:
        """The boxes of the objects, [N,M,4]."""
        return self.examples[split]["boxes"].block(np.arange(self.size(split)), 1)

    def most(self, split: str) -> int:
        """How many objects an image of the split has at most."""
        return int((self.labels(split) > 0).sum(axis=1).max())

    def checked(self, given: Boxed, split: str) -> Boxed:
        """Returns the images and boxes of a split unchanged; raises `UserError` for none, unequal
        counts, an unknown label, or a box outside its image. See `Dataset.checked`.
        """
        where, (images, labels, boxes, classes, unlearned) = self.where(split), given
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
        for number, (mine, of) in enumerate(zip(boxes, labels, strict=True), 1):
            if len(mine) != len(of):
                raise UserError(
                    f"{where}: image {number} has {len(of)} labels and {len(mine)} boxes"
                )
            for label, (row, column, high, broad) in zip(of, mine, strict=True):
                within = (
                    row >= 0 and column >= 0 and row + high <= height and column + broad <= width
                )
                if not within or min(high, broad) <= 0:
                    raise UserError(
                        f"{where}: the box of {label!r} in image {number} (row {row}, column {column},"
                        f" {high} high, {broad} wide) is not within {height} x {width} pixels"
                    )
                if label not in classes:
                    raise UserError(
                        f"{where}: image {number} has the label {label!r}; {nearest(label, classes)}"
                    )
        return given

    def encoded(self, given: Boxed, split: str) -> Split:
        """Encodes a split as the columns "image", "boxes" (middle and sides as shares of the
        image), "labels" (class + 1, 0 for none) and "real", with padding to M objects. See
        `Dataset.encoded`.
        """
        self.check_learned(given, split)
        count, most = len(given.images), max(map(len, given.labels))
        numbers = {label: number for number, label in enumerate(given.classes, 1)}
        labels, boxes = np.zeros((count, most), np.int32), np.zeros((count, most, 4), np.float32)
        sides = np.tile(np.array(given.images.shape[1:3], np.float64), 2)
        for row, (names, mine) in enumerate(zip(given.labels, given.boxes, strict=True)):
            labels[row, : len(names)] = [numbers[name] for name in names]
            shares = np.asarray(mine, np.float64).reshape(-1, 4) / sides
            boxes[row, : len(names), :2] = shares[:, :2] + shares[:, 2:] / 2
            boxes[row, : len(names), 2:] = shares[:, 2:]
        examples = Examples(
            image=given.images, boxes=boxes, labels=labels, real=np.ones(count, np.int32)
        )
        return Split(_judged(given), examples, fingerprint(given.images, [_digest(given)]))


def _judged(given: Boxed) -> list[Judged]:
    """Returns for each image the boxes (as shares of it), class numbers and crowd flags of all its
    objects, the unlearned ones too, against which predictions are scored.
    """
    numbers = {label: number for number, label in enumerate(given.classes)}
    sides, judged = np.tile(np.array(given.images.shape[1:3], np.float64), 2), []
    for row, (names, mine) in enumerate(zip(given.labels, given.boxes, strict=True)):
        more = given.unlearned[row] if given.unlearned else ()
        boxes = np.concatenate(
            [
                np.asarray(part, np.float64).reshape(-1, 4)
                for part in (mine, *(box for _, box, _ in more))
            ]
        )
        boxes[:, :2] += boxes[:, 2:] / 2
        of = [numbers[name] for name in (*names, *(name for name, _, _ in more))]
        crowd = [*(False for _ in names), *(crowd for _, _, crowd in more)]
        judged.append((boxes / sides, np.array(of, int), np.array(crowd, bool)))
    return judged


def _digest(given: Boxed) -> str:
    """Returns the SHA-256 (hex) of the labels and boxes of all images, those of unlearned objects
    included.
    """
    content: list[Any] = [
        (list(names), np.asarray(mine, np.float64).tolist())
        for names, mine in zip(given.labels, given.boxes, strict=True)
    ]
    if any(given.unlearned):
        content += [
            [(name, np.asarray(box, np.float64).tolist(), crowd) for name, box, crowd in image]
            for image in given.unlearned
        ]
    return hashlib.sha256(repr(content).encode()).hexdigest()
