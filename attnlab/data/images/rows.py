"""Images in the named columns of tables, as names of files or as their bytes, with labels, captions,
boxes, masks or questions.
"""

import dataclasses
import functools
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from attnlab.data.files import contents
from attnlab.data.images.annotated import Boxed, Captioned, Labelled, Resized, Segmented, in_order
from attnlab.data.images.coco import Objects, check_box, fit_objects
from attnlab.data.images.regions import check_classes, read_mask
from attnlab.data.images.texts import Asked, Question
from attnlab.data.readers.images import Named, decoded, read_image, upright_size
from attnlab.data.readers.records import Record
from attnlab.data.rows import Rows, as_text, in_line, is_blank
from attnlab.errors import UserError


@dataclasses.dataclass(frozen=True)
class ImageRows(Resized, Rows):
    """Images in the columns of tables: names of PNG or JPEG files, from the folder of the table on, or
    their bytes, as `datasets` keeps them. Which columns a task takes stands in
    `attnlab.data.rows.TAKES`; the other settings are those of `Rows`.

    Attributes:
      columns: what the columns are called in the files: `image`, and `label`; or `caption`, a text or
        a list of texts; or `boxes` and `categories`, a list each; or `mask`, another image; or
        `question` and `answer`.
      side: height and width to which every image is resized, in pixels; 0 leaves images as they
        are, which must then have one size.
      grey: one channel instead of three.
      boxes: the four numbers of a box, in pixels: xywh (first column, first row, width, height, as
        COCO has them) or xyxy (first column, first row, last column, last row); must be said where
        there are boxes.
      classes: names of classes: of masks those of the numbers 1, 2, ...; of boxes all that there
        can be, or () for those of training.
      drawn_by: what tells which split an image is in where shares are drawn: its content, so that
        the same file under another name is in the same one, or its name, as in runs of before.

    Raises:
      UserError: settings that do not go together, or a number out of range.
    """

    side: int = 64
    grey: bool = False
    boxes: Literal["", "xywh", "xyxy"] = ""
    classes: tuple[str, ...] = ()
    drawn_by: Literal["content", "name"] = "content"

    def check_settings(self, method: str) -> None:
        """Raises `UserError` if `method` is "objects" and the setting `boxes` is empty, or if it is
        "masks" and the setting `classes` is, or if class names are invalid.
        """
        if method == "objects" and not self.boxes:
            raise UserError(
                "config.data.boxes must say what the numbers of a box are, in pixels: xywh (column,"
                " row, width, height) or xyxy (first column, first row, last column, last row)"
            )
        if method == "masks" or self.classes:
            check_classes(self.classes)

    def images(self, split: str) -> Labelled:
        """Returns the images of a split as `Labelled`, each with its label as a text in one line."""
        rows = self.rows(split, "images")
        return Labelled(self._images(rows), [in_line(row["label"]) for _, row in rows])

    def captions(self, split: str) -> Captioned:
        """Returns the images of a split as `Captioned`, one with several captions once for each."""
        rows = self.rows(split, "captions")
        texts = [self._texts(where, "caption", row["caption"]) for where, row in rows]
        several = [row for row, of_row in zip(rows, texts, strict=True) for _ in of_row]
        return Captioned(self._images(several), [text for of_row in texts for text in of_row])

    def objects(self, split: str) -> Boxed:
        """Returns the images of a split as `Boxed`, each with the labels and boxes of its objects,
        and the names of all classes; boxes without an extent are apart, in its field `unlearned`.

        Raises:
          UserError: as `rows` does; no convention of boxes, boxes that do not fit it or their image
            or are shares of that, not as many categories, an image with an EXIF orientation.
        """
        self.check_settings("objects")
        rows = self.rows(split, "objects")
        objects = [self._objects(*row) for row in rows]
        if max((max(box) for things in objects for _, box, _ in things), default=2) <= 1:
            problem = f"no box of the {split} split has a number above 1"
            raise UserError(f"{rows[0][0]}: {problem}; write pixels, not shares of the image")
        sides, index = self._read_once(rows, lambda image: np.array(upright_size(*image)), "sides")
        parts = [
            fit_objects(things, size, self.side, f"{where}, boxes as {self.boxes}")
            for things, size, (where, _) in zip(objects, sides()[index].tolist(), rows, strict=True)
        ]
        training = rows if split == "train" or self.classes else self.rows("train", "objects")
        labels = {label for row in training for label, _, _ in self._objects(*row)}
        classes = self.classes or sorted(labels, key=in_order)
        names, fitted, unlearned = map(list, zip(*parts, strict=True))
        return Boxed(self._images(rows), names, fitted, classes, unlearned)

    def masks(self, split: str) -> Segmented:
        """Returns the images of a split as `Segmented`, each with a mask, the class number of every
        pixel (0 for the ground, -1 for unlabelled pixels), and the configured class names.

        Raises:
          UserError: as `rows` does; no classes, a mask that is none or not one of its image.
        """
        self.check_settings("masks")
        rows, count = self.rows(split, "masks"), len(self.classes)
        read = functools.partial(read_mask, classes=count, side=self.side)
        masks, index = self._read_once(rows, read, ("mask", count, self.side), ("image", "mask"))
        return Segmented(self._images(rows), masks()[index], self.classes)

    def visual_questions(self, split: str) -> Asked:
        """Returns the questions of a split as `Asked`, with a function that reads their images."""
        rows = self.rows(split, "visual_questions")
        images, index = self._read_once(rows, self._pixels, (self.side, self.grey))
        texts = [(in_line(row["question"]), in_line(row["answer"])) for _, row in rows]
        return Asked([Question(n, *pair) for n, pair in zip(index, texts, strict=True)], images)

    def _percents(self, rows: Sequence[Record]) -> list[float]:
        """Returns where each row is drawn, a list of percents, by the content of its image, or by its
        first column if `drawn_by` is "name".
        """
        if self.drawn_by == "name" or not rows:
            return super()._percents(rows)
        digests, index = self._read_once(rows, _digest, "digest")
        return [self._percent(digest.tobytes()) for digest in digests()[index]]

    def _texts(self, where: str, column: str, cell: Any) -> list[str]:
        """Returns the texts of a cell, which is a text or a list of texts, as a list; raises
        `UserError`, with the location `where` and the column, for a blank text.
        """
        name, several = self.name_in_files(column), cell if isinstance(cell, list) else [cell]
        texts = [in_line(as_text(text, name, where)) for text in several]
        if not all(texts):
            raise UserError(f"{where}: column {name!r} has a blank text in its list; leave it out")
        return texts

    def _objects(self, where: str, row: Mapping[str, Any]) -> Objects:
        """Returns the objects of a row as a list of (label, [column, row, width, height], False),
        as `fit_objects` takes them; raises `UserError` unless the row has as many boxes of 4
        numbers as categories.
        """
        boxes, categories = row["boxes"], row["categories"]
        if (type(boxes), type(categories)) != (list, list) or len(boxes) != len(categories):
            has = f"boxes {str(boxes)[:30]} and categories {str(categories)[:30]}"
            raise UserError(f"{where} has {has}; expected two lists, a category for each box")
        numbers = [check_box(box, where, f"4 numbers, {self.boxes}") for box in boxes]
        if self.boxes == "xyxy":
            numbers = [[left, top, right - left, end - top] for left, top, right, end in numbers]
        labels = self._texts(where, "categories", categories)
        return [(label, box, False) for label, box in zip(labels, numbers, strict=True)]

    def _images(self, rows: Sequence[Record]) -> np.ndarray:
        """Returns the images of rows, uint8 [N,H,W,C]; one that several rows have is read once."""
        images, index = self._read_once(rows, self._pixels, (self.side, self.grey))
        return images()[index]

    def _pixels(self, image: Named) -> np.ndarray:
        """Reads an image, uint8 [H,W,C], upright and resized."""
        return read_image(image[0], self.side, self.grey, image[1])

    def _read_once(
        self,
        rows: Sequence[Record],
        read: Callable[..., np.ndarray],
        key: object,
        columns: Sequence[str] = ("image",),
    ) -> tuple[Callable[[], np.ndarray], list[int]]:
        """Returns a pair: a function that reads, or takes from the cache by `key`, one array of what
        `read` makes of the images in the `columns` of each different row, and a list with the
        number of each row's part in this array.

        Args:
          rows: of `columns`.
          read: makes an array of what each of the columns has, given as `Named`.
          key: all that decides what `read` makes, see `decoded`.
          columns: whose images are read.
        """
        cells = [tuple(_path_or_bytes(where, row[name]) for name in columns) for where, row in rows]
        first = dict(zip(reversed(cells), (where for where, _ in reversed(rows)), strict=True))
        index_of = {cell: number for number, cell in enumerate(dict.fromkeys(cells))}

        def read_named(cell: tuple[Path | bytes, ...]) -> np.ndarray:
            """Reads a cell; errors say where it stands first."""
            named: list[Named] = []
            for file, column in zip(cell, columns, strict=True):
                name = f"{first[cell]}: {file if isinstance(file, Path) else 'the ' + column}"
                named.append((file if isinstance(file, Path) else io.BytesIO(file), name))
            return read(*named)

        return lambda: decoded(list(index_of), read_named, key), [index_of[cell] for cell in cells]


def _path_or_bytes(where: str, cell: object) -> Path | bytes:
    """Returns the image in a cell, or in "bytes" or else "path" of a dict in it, as the path of a
    file or as bytes, b"" for a blank cell; raises `UserError`, which begins with `where`, for any
    other cell.
    """
    if isinstance(cell, dict):  # as `datasets` has it
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, bytes) or is_blank(cell):
        return cell if isinstance(cell, bytes) else b""
    if isinstance(cell, str) and "\0" not in cell:
        return Path(where.rpartition(", ")[0]).parent / cell
    raise UserError(f"{where}: an image is the name of a file or bytes, not {str(cell)[:40]}")


def _digest(image: Named) -> np.ndarray:
    """Returns the SHA-256 of the bytes of an image as uint8 [32]."""
    file = image[0]
    content = contents(file) if isinstance(file, Path) else file.read()
    return np.frombuffer(hashlib.sha256(content).digest(), np.uint8)
