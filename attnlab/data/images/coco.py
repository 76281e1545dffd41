"""Images with boxes or captions in the form of COCO: FOLDER/NAME/*.jpg with
FOLDER/annotations/instances_NAME.json or captions_NAME.json.

The JSON file is an object with the lists `images` (id, file_name) and `annotations` (image_id). With
boxes an annotation has category_id, bbox (first column, first row, width, height in pixels) and
iscrowd, and a list `categories` (id, name) stands beside them; with captions it has caption. Source
of the form: T.-Y. Lin et al., "Microsoft COCO: Common Objects in Context", ECCV 2014, and its web
page. As in the code of DETR (Carion et al. 2020), annotations of crowds and boxes without an extent
are not learned, and parts of a box beyond its image are cut off; a box that lies outside by more than
a pixel is an error here. AP knows both, as COCO's evaluation code does: a crowd is a region where
answers count for nothing, a box without an extent an object that nobody finds. The key `ignore` means
nothing there, and so it does here. Their code, torchvision's and pycocotools' read no EXIF orientation,
so boxes count in pixels as they are stored; only where an image has the `height` and `width` that its
file has after turning, it is turned. Other sizes than the file's are an error. Images with captions
are turned.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from attnlab.data.files import contents, find_file
from attnlab.data.images.annotated import Boxed, Captioned
from attnlab.data.images.files import ImageFiles
from attnlab.data.json_files import parse_json
from attnlab.data.readers.images import opened, orientation, pixels, resized
from attnlab.errors import UserError
from attnlab.records.files import expanded

_SLACK = 1.0  # pixels that a box may lie outside: published ones are rounded


@dataclass(frozen=True)
class _Coco(ImageFiles):
    """Base of what COCO tells of images; without `valid` a part of training is for validation."""

    kind: ClassVar[str]  # how the names of its files of annotations begin

    train: str = "train2017"
    valid: str = ""
    test: str = "val2017"

    def _paths(self, split: str) -> tuple[Path, Path]:
        """Returns the annotation file and the image folder of a split, those of training where
        validation has none.
        """
        name = {"train": self.train, "valid": self.valid or self.train, "test": self.test}[split]
        path = find_file(self.directory, f"annotations/{self.kind}_{name}.json")
        return path, expanded(self.directory) / name


@dataclass(frozen=True)
class CocoBoxes(_Coco):
    """Images with boxes as COCO has them, see above; without `valid` a part of training is for
    validation.

    Attributes:
      directory: where the folders of images and `annotations` lie; "" for the current folder.
      train: NAME of the training split.
      valid: that of the validation split; "" for a part of training.
      test: that of the test split, which must have boxes, as COCO's own test has not.
      side: height and width to which images, and boxes with them, are resized.
      grey: whether images are read in grey: one channel instead of three.

    Raises:
      UserError: a number out of range.
    """

    kind = "instances"

    def objects(self, split: str) -> Boxed:
        """Reads the images of `split`, resized to side x side, and returns them as `Boxed`, each
        with the labels and boxes of its objects; crowds and empty boxes are apart, in its field
        `unlearned`. The classes are all categories of the file, in the order of their ids.

        Raises:
          UserError: a file that is missing, damaged or of another form, an id that is not there, an
            image that cannot be read, or a box outside its image.
        """
        path, folder = self._paths(split)
        names, sizes, truth, classes = _annotated(path)
        images, parts = [], []
        for key in self.part(split, list(names), bool(self.valid)):
            image = self._sized(folder / names[key], sizes[key], str(path))
            where = f"{path}: {names[key]}"
            parts.append(fit_objects(truth[key], image.shape[:2], self.side, where))
            images.append(resized(image, self.side))
        labels, boxes, unlearned = map(list, zip(*parts, strict=True))
        return Boxed(np.stack(images), labels, boxes, classes, unlearned)

    def _sized(self, file: Path, size: tuple[Any, Any], where: str) -> np.ndarray:
        """Reads an image in the orientation that has its annotated `size` (height, width, or two
        None) and returns it as uint8 [H,W,C]; raises `UserError`, which begins with `where`, if no
        orientation has it.
        """
        with opened(file, str(file)) as image:
            turns = orientation(image) > 4
            stored = image.height, image.width
            upright = turns and size != stored and size == stored[::-1]
            if not upright and size not in (stored, (None, None)):
                raise UserError(
                    f"{where}: {file.name} has height {size[0]!r} and width {size[1]!r}, the file"
                    f" is {stored[0]} x {stored[1]} pixels; boxes of another size do not fit"
                )
            return pixels(image, str(file), self.grey, upright=upright)


@dataclass(frozen=True)
class CocoCaptions(_Coco):
    """Images with captions as COCO has them, see above, each caption an example; without `valid` a
    part of the images of training is for validation.

    Attributes:
      directory: where the folders of images and `annotations` lie; "" for the current folder.
      train: NAME of the training split.
      valid: that of the validation split; "" for a part of training.
      test: that of the test split, which must have captions, as COCO's own test has not.
      side: height and width to which images are resized.
      grey: whether images are read in grey: one channel instead of three.

    Raises:
      UserError: a number out of range.
    """

    kind = "captions"

    def captions(self, split: str) -> Captioned:
        """Reads the images of `split` in the order of the annotation file and returns them as
        `Captioned`, each with its caption; an image with several captions is repeated, once per
        caption.

        Raises:
          UserError: a file that is missing, damaged or of another form, an image without a caption,
            a caption of no image, or an image that cannot be read.
        """
        path, folder = self._paths(split)
        names, texts = _captions(path)
        chosen = self.part(split, list(names), bool(self.valid))
        images = self.read_all([folder / names[key] for key in chosen])
        rows = [row for row, key in enumerate(chosen) for _ in texts[key]]
        return Captioned(images[rows], [text for key in chosen for text in texts[key]])


Objects = list[tuple[str, list[float], bool]]


def _annotated(
    path: Path,
) -> tuple[dict[Any, str], dict[Any, tuple[Any, Any]], dict[Any, Objects], tuple[str, ...]]:
    """Reads a COCO annotation file and returns three dicts by image id, of file names, sizes
    (height, width) and lists of objects (label, box, whether a crowd), and all labels in the order
    of their ids; raises `UserError` for another form.
    """
    images, annotations, categories = _lists(path, ("images", "annotations", "categories"))
    names = _names_by_id(images, "file_name", f"{path}: image")
    labels = _names_by_id(categories, "name", f"{path}: category")
    label, count = max(Counter(labels.values()).items(), key=lambda pair: pair[1], default=("", 0))
    if count > 1:
        raise UserError(f"{path}: {count} categories have the name {label!r}; give each its own")
    objects: dict[Any, Objects] = {key: [] for key in names}
    for entry, where in _entries(annotations, f"{path}: annotation"):
        crowd = entry.get("iscrowd", 0)
        if crowd not in (0, 1):
            raise UserError(f"{where}: iscrowd is {crowd!r}; expected 0 or 1")
        image = _id_of(entry, "image", names, where)
        label = _id_of(entry, "category", labels, where)
        objects[image].append((labels[label], check_box(entry.get("bbox"), where), crowd == 1))
    sizes = {entry["id"]: (entry.get("height"), entry.get("width")) for entry in images}
    return names, sizes, objects, tuple(labels[key] for key in sorted(labels))


def _captions(path: Path) -> tuple[dict[Any, str], dict[Any, list[str]]]:
    """Reads a COCO annotation file and returns two dicts by image id, of file names and of lists of
    captions; raises `UserError` for a blank caption or an image without a caption.
    """
    images, annotations = _lists(path, ("images", "annotations"))
    names = _names_by_id(images, "file_name", f"{path}: image")
    captions: dict[Any, list[str]] = {key: [] for key in names}
    for entry, where in _entries(annotations, f"{path}: annotation"):
        text = entry.get("caption")
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{where}: caption is {text!r}; expected a text")
        captions[_id_of(entry, "image", names, where)].append(" ".join(text.split()))
    bare = [key for key in names if not captions[key]]
    if bare:
        raise UserError(
            f"{path}: {len(bare)} of {len(names)} images have no caption, {names[bare[0]]!r} (id"
            f" {bare[0]!r}) the first; give them one, or remove them from the file"
        )
    return names, captions


def _lists(path: Path, names: Sequence[str]) -> list[list[Any]]:
    """Reads a JSON file and returns its lists called `names`, in this order; raises `UserError` if
    a list is missing, or if "images" is empty.
    """
    content = parse_json(contents(path), str(path))
    lists = [content.get(name) if isinstance(content, Mapping) else None for name in names]
    for name, entries in zip(names, lists, strict=True):
        if not isinstance(entries, list):
            expected = f"{', '.join(names[:-1])} and {names[-1]}"
            raise UserError(f"{path} has no list {name!r}; expected {expected}")
        if name == "images" and not entries:
            raise UserError(f"{path}: 'images' is empty")
    return [entries for entries in lists if isinstance(entries, list)]


def _names_by_id(entries: list[Any], field: str, title: str) -> dict[int, str]:
    """Returns a dict from the id of each entry of a list to its `field` as a str; raises
    `UserError`, which calls an entry `title` and its number, for an id that is no whole number or
    occurs twice.
    """
    by_id: dict[int, str] = {}
    for entry, where in _entries(entries, title):
        key, name = _field(entry, "id", where), str(_field(entry, field, where))
        if type(key) is not int:
            raise UserError(f"{where}: id is {key!r}; expected a whole number")
        if key in by_id:
            raise UserError(f"{where}: {name!r} has the id of {by_id[key]!r}, {key}")
        by_id[key] = name
    return by_id


def _id_of(entry: Mapping[str, Any], kind: str, names: Mapping[Any, str], where: str) -> Any:
    """Returns the id of the image or category (`kind`) that an annotation names; raises `UserError`
    unless it is among `names`, those of the file by id.
    """
    key = _field(entry, f"{kind}_id", where)
    if key not in names:
        raise UserError(f"{where} is of {kind} {key!r}, which the file does not have")
    return key


def _entries(entries: list[Any], title: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yields each entry of a list with its name for error messages, `title` and its number; raises
    `UserError` at one that is no object.
    """
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, Mapping):
            raise UserError(f"{title} {number} is {entry!r}; expected an object")
        yield entry, f"{title} {number}"


def _field(entry: Mapping[str, Any], name: str, where: str) -> Any:
    """Returns the field `name` of an entry; raises `UserError` unless it is a whole number or a
    text.
    """
    if type(entry.get(name)) not in (int, str):  # true and false are no numbers here
        raise UserError(f"{where} has no {name!r}, a number or a text")
    return entry[name]


def check_box(
    box: Any, where: str, form: str = "[column, row, width, height] in pixels"
) -> list[float]:
    """Returns a box as four floats; raises `UserError`, which names the `form`, if it is something
    else.
    """
    four_long = isinstance(box, list) and len(box) == 4
    if not four_long or not all(type(side) in (int, float) for side in box or ()):
        raise UserError(f"{where}: bbox is {box!r}; expected {form}")
    return [float(side) for side in box or ()]


def fit_objects(
    objects: Objects, size: tuple[int, int], side: int, where: str
) -> tuple[list[str], np.ndarray, list[tuple[str, np.ndarray, bool]]]:
    """Returns the labels and the boxes [K,4] (row, column, height, width) of the objects of an
    image, resized from `size` to side x side pixels, and apart a list of (label, box, whether a
    crowd) of crowds and empty boxes, which are not learned.

    Args:
      objects: label, box (first column, first row, width, height in pixels) and whether a crowd.
      size: height and width of the image.
      side: height and width to which it is resized; 0 leaves it.
      where: the file and the image, for messages.

    Raises:
      UserError: a box that lies outside by more than a pixel, or has a negative extent.
    """
    boxes = _fitted(objects, size, side, where)
    crowd = np.array([crowd for _, _, crowd in objects], bool)
    learned = (boxes[:, 2:].min(axis=1) > 0) & ~crowd
    labels = [objects[row][0] for row in np.flatnonzero(learned)]
    unlearned_rows = np.flatnonzero(~learned)
    unlearned = [(objects[row][0], boxes[row], bool(crowd[row])) for row in unlearned_rows]
    return labels, boxes[learned], unlearned


def _fitted(objects: Objects, size: tuple[int, ...], side: int, where: str) -> np.ndarray:
    """Returns the boxes of objects in an image of `size` (height, width) as [K,4], first row, first
    column, height and width, resized to side x side pixels if `side` is not 0; raises `UserError`
    for a box more than a pixel outside the image or with a negative side.
    """
    height, width = size
    fitted = np.zeros((len(objects), 4))
    for row, (label, (left, top, wide, high), _) in enumerate(objects):
        right, bottom = left + wide, top + high
        beyond = np.max([-left, -top, right - width, bottom - height])  # NaN if any is
        if not beyond <= _SLACK or min(wide, high) < 0:
            raise UserError(
                f"{where}: the box of {label!r} (column {left:g}, row {top:g}, {wide:g} wide,"
                f" {high:g} high) is not within {height} x {width} pixels"
            )
        ends = np.clip([top, left, bottom, right], 0, [height, width, height, width])
        if side:
            ends = ends / np.array([height, width, height, width]) * side
        fitted[row] = *ends[:2], *(ends[2:] - ends[:2])
    return fitted
