"""Images with boxes in the form of COCO: FOLDER/NAME/*.jpg with FOLDER/annotations/instances_NAME.json.

The JSON file is an object with the lists `images` (id, file_name), `annotations` (image_id,
category_id, bbox: first column, first row, width, height in pixels, iscrowd) and `categories` (id,
name). Source of the form: T.-Y. Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014, and
its web page. As in the code of DETR (Carion et al. 2020), annotations of crowds and boxes without an
extent are left out, and parts of a box beyond its image are cut off; a box that lies outside by more
than a pixel is an error here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.data.files import contents, find_file
from attnlab.data.images.annotated import Boxed
from attnlab.data.images.folder import read_image, resized
from attnlab.data.images.labelled import HeldOut, Shape
from attnlab.errors import UserError
from attnlab.records.files import expanded

_SLACK = 1.0  # pixels that a box may lie outside: published ones are rounded


@dataclass(frozen=True)
class CocoBoxes(HeldOut):
    """Images with boxes as COCO has them, see above; without `valid` a part of training is for
    validation.

    Attributes:
      directory: where the folders of images and `annotations` lie; "" for the current folder.
      train: NAME of the training split.
      valid: that of the validation split; "" for a part of training.
      test: that of the test split, which must have boxes, as COCO's own test has not.
      side: height and width to which images, and boxes with them, are resized.
      grey: one channel instead of three.

    Raises:
      UserError: a number out of range.
    """

    directory: str = ""
    train: str = "train2017"
    valid: str = ""
    test: str = "val2017"
    side: int = 64
    grey: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.side <= 4096:
            raise UserError(f"config.data.side={self.side} must be in 1 ... 4096")

    @property
    def shape(self) -> Shape:
        """H, W, C of every image."""
        return self.side, self.side, 1 if self.grey else 3

    def objects(self, split: str) -> Boxed:
        """The images of `split` with their objects; the classes are all categories of its file, in the
        order of their ids.

        Raises:
          UserError: a file that is missing, damaged or of another form, an id that is not there, an
            image that cannot be read, or a box outside its image.
        """
        name = {"train": self.train, "valid": self.valid or self.train, "test": self.test}[split]
        path = find_file(self.directory, f"annotations/instances_{name}.json")
        names, found, classes = _annotated(path)
        files = list(names)
        if split != "test" and not self.valid:
            files = [files[row] for row in self.rows(split, len(files))]
        images, labels, boxes = [], [], []
        for one in files:
            image = read_image(expanded(self.directory) / name / names[one], 0, self.grey)
            mine = _fitted(found[one], image.shape[:2], self.side, f"{path}: {names[one]}")
            kept = np.flatnonzero(mine[:, 2:].min(axis=1) > 0)
            images.append(resized(image, self.side))
            labels.append([found[one][row][0] for row in kept])
            boxes.append(mine[kept])
        return Boxed(np.stack(images), labels, boxes, classes)


Objects = list[tuple[str, list[float]]]


def _annotated(path: Path) -> tuple[dict[Any, str], dict[Any, Objects], tuple[str, ...]]:
    """Of a file: the name of each image, its objects (label; column, row, width, height), both by its
    id, and the labels.
    """
    try:
        content = json.loads(contents(path))
    except ValueError as error:
        raise UserError(f"{path} is damaged or no JSON: {error}") from error
    lists = [_list(content, path, name) for name in ("images", "categories", "annotations")]
    names = {
        _field(one, "id", where): str(_field(one, "file_name", where))
        for one, where in _told(lists[0], f"{path}: image")
    }
    labels = {
        _field(one, "id", where): str(_field(one, "name", where))
        for one, where in _told(lists[1], f"{path}: category")
    }
    if not names:
        raise UserError(f"{path}: 'images' is empty")
    found: dict[Any, Objects] = {one: [] for one in names}
    for one, where in _told(lists[2], f"{path}: annotation"):
        if one.get("iscrowd"):
            continue
        image, label = _field(one, "image_id", where), _field(one, "category_id", where)
        for key, known, what in ((image, names, "image"), (label, labels, "category")):
            if key not in known:
                raise UserError(f"{where} is of {what} {key!r}, which the file does not have")
        found[image].append((labels[label], _numbers(one, where)))
    return names, found, tuple(labels[one] for one in sorted(labels))


def _list(content: Any, path: Path, name: str) -> list[Any]:
    """A list of the file; `UserError` where there is none."""
    found = content.get(name) if isinstance(content, Mapping) else None
    if not isinstance(found, list):
        raise UserError(f"{path} has no list {name!r}; expected images, annotations and categories")
    return found


def _told(entries: list[Any], what: str) -> list[tuple[Mapping[str, Any], str]]:
    """Each entry with what to call it in an error; `UserError` for one that is no object."""
    for number, one in enumerate(entries, 1):
        if not isinstance(one, Mapping):
            raise UserError(f"{what} {number} is {one!r}; expected an object")
    return [(one, f"{what} {number}") for number, one in enumerate(entries, 1)]


def _field(entry: Mapping[str, Any], name: str, where: str) -> Any:
    if not isinstance(entry.get(name), int | str):
        raise UserError(f"{where} has no {name!r}, a number or a text")
    return entry[name]


def _numbers(entry: Mapping[str, Any], where: str) -> list[float]:
    """The box of an annotation."""
    box = entry.get("bbox")
    whole = isinstance(box, list) and len(box) == 4
    if not whole or not all(isinstance(one, int | float) for one in box or ()):
        raise UserError(
            f"{where}: bbox is {box!r}; expected [column, row, width, height] in pixels"
        )
    return [float(one) for one in box or ()]


def _fitted(objects: Objects, size: tuple[int, ...], side: int, where: str) -> np.ndarray:
    """Boxes in an image of height x width pixels as [K,4] in one of side x side: first row, first
    column, height, width.
    """
    height, width = size
    fitted = np.zeros((len(objects), 4))
    for row, (label, (left, top, wide, high)) in enumerate(objects):
        right, bottom = left + wide, top + high
        beyond = max(-left, -top, right - width, bottom - height)
        if not beyond <= _SLACK or min(wide, high) < 0:
            raise UserError(
                f"{where}: the box of {label!r} (column {left:g}, row {top:g}, {wide:g} wide,"
                f" {high:g} high) is not within {height} x {width} pixels"
            )
        ends = np.clip([top, left, bottom, right], 0, [height, width, height, width])
        ends = ends / np.array([height, width, height, width]) * side
        fitted[row] = *ends[:2], *(ends[2:] - ends[:2])
    return fitted
