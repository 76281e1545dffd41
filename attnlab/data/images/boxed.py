"""From config to images with all of their objects: a box and a class for each.

In a batch an image has M rows for objects, M the most that an image of its split has: `boxes` are
(row, column, height, width), the middle and the sides as shares of the image, and `labels` k + 1 for
class k and 0 for no object. An image may have none, so `real` is 1 for every image and 0 for a row
of padding.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.data import SPLITS
from attnlab.data.columns import Examples
from attnlab.data.images.annotated import Boxed
from attnlab.data.images.labelled import Learned, Pictures, fingerprint, giving, moments
from attnlab.errors import UserError, nearest


class BoxedData(Pictures):
    """The data of a run of detection; the columns are "image", "boxes", "labels" and "real"."""

    def about(self, split: str) -> str:
        """See `Pictures.about`, and how many objects there are."""
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


def source(data: Mapping[str, Any]) -> Any:
    """The source of a config node; `UserError` unless it has objects."""
    return giving(data, "objects", "scenes or coco_boxes")


def load(
    data: Mapping[str, Any],
    workdir: Path | None = None,
    splits: Sequence[str] = ("train", "valid"),
) -> BoxedData:
    """Read the splits of a source. Mean and deviation of the images come from
    `<workdir>/vocabulary/` if they are there. Else they are learned, on the training split and
    nothing else; `BoxedData.save` keeps them, with the classes.

    Raises:
      UserError: bad config, unreadable data, boxes that are not within their images, other classes
        or sizes than those of training, or what was saved is damaged.
    """
    of, where = source(data), f"config.data={data['name']}"
    known = workdir is not None and BoxedData.saved(workdir)
    found = {
        split: _checked(of.objects(split), f"{where}: the {split} split")
        for split in SPLITS
        if split in splits or (split == "train" and not known)
    }
    if known:
        assert workdir is not None
        learned = Learned.load(workdir)
    else:
        images, classes = found["train"].images, tuple(found["train"].classes)
        learned = Learned(classes, images.shape[1:], *moments(images))
    for split, one in found.items():
        _check_like(learned, one, f"{where}: the {split} split")
    chosen = {split: found[split] for split in splits}
    return BoxedData(
        {split: _encoded(one) for split, one in chosen.items()},
        learned,
        {split: fingerprint(one.images, [_digest(one)]) for split, one in chosen.items()},
    )


def _checked(given: Boxed, where: str) -> Boxed:
    """What a source gave, once it is as agreed."""
    images, labels, boxes, classes = given
    if images.dtype != np.uint8 or images.ndim != 4 or not images.size:
        raise UserError(
            f"{where} has {images.dtype} {list(images.shape)}; expected uint8 [N,H,W,C], N at least 1"
        )
    if not classes or not any(len(one) for one in labels):
        raise UserError(f"{where} has no object; there is nothing to find")
    if not len(images) == len(labels) == len(boxes):
        raise UserError(
            f"{where} has {len(images)} images, {len(labels)} lists of labels and {len(boxes)} of"
            " boxes"
        )
    height, width = images.shape[1:3]
    for number, (mine, of) in enumerate(zip(boxes, labels, strict=True), 1):
        if len(mine) != len(of):
            raise UserError(f"{where}: image {number} has {len(of)} labels and {len(mine)} boxes")
        for label, (row, column, high, broad) in zip(of, mine, strict=True):
            within = row >= 0 and column >= 0 and row + high <= height and column + broad <= width
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


def _check_like(learned: Learned, given: Boxed, where: str) -> None:
    """`UserError` unless a split has the sizes and classes of training."""
    if given.images.shape[1:] != learned.shape:
        mine, theirs = (
            " x ".join(map(str, one)) for one in (given.images.shape[1:], learned.shape)
        )
        raise UserError(f"{where} has images of {mine}, the training split of {theirs}")
    if tuple(given.classes) != learned.classes:
        raise UserError(
            f"{where} has the classes {', '.join(given.classes)}, training"
            f" {', '.join(learned.classes)}"
        )


def _encoded(given: Boxed) -> Examples:
    """The columns of a split."""
    count, most = len(given.images), max(map(len, given.labels))
    numbers = {label: number for number, label in enumerate(given.classes, 1)}
    labels, boxes = np.zeros((count, most), np.int32), np.zeros((count, most, 4), np.float32)
    sides = np.tile(np.array(given.images.shape[1:3], np.float64), 2)
    for row, (names, mine) in enumerate(zip(given.labels, given.boxes, strict=True)):
        labels[row, : len(names)] = [numbers[name] for name in names]
        found = np.asarray(mine, np.float64).reshape(-1, 4) / sides
        boxes[row, : len(names), :2] = found[:, :2] + found[:, 2:] / 2
        boxes[row, : len(names), 2:] = found[:, 2:]
    return Examples(image=given.images, boxes=boxes, labels=labels, real=np.ones(count, np.int32))


def _digest(given: Boxed) -> str:
    told = [
        (list(names), np.asarray(mine, np.float64).tolist())
        for names, mine in zip(given.labels, given.boxes, strict=True)
    ]
    return hashlib.sha256(repr(told).encode()).hexdigest()
