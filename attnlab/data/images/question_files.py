"""Questions about the user's own images: the form of easy-VQA, and JSON lines that name image files."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attnlab.data.files import SplitFiles, contents, find_file, read_lines
from attnlab.data.images.annotated import HeldOut, Resized
from attnlab.data.images.files import array_of, arrays_of
from attnlab.data.images.texts import Asked, Box, Question
from attnlab.data.json_files import objects_of, parse_json, text_of
from attnlab.data.readers.images import decoded, read_image, resized, upright_size
from attnlab.data.readers.records import Row, check_widths, split_lines
from attnlab.errors import UserError, nearest
from attnlab.records.files import expanded

_COLUMNS = ("question", "answer", "image_id")


@dataclass(frozen=True)
class EasyVqa(Resized, HeldOut):
    """Questions in the form of easy-VQA (V. Zhou, github.com/vzhou842/easy-VQA): train/questions.json,
    a list of [question, answer, number of the image], and train/images/NUMBER.png; the same for
    test. Or packed: train_questions.tsv (plain, .gz or .xz) with the columns question, answer and
    image_id, and train_images.npz with `images` uint8 [N,H,W,C] and their numbers `ids` [N].

    Validation has a part of the training images, with all questions about them.

    Attributes:
      directory: where these lie; "" for the current folder.
      side: height and width to which every image is resized, in pixels; 0 leaves images as they
        are, which must then have one size.

    Raises:
      UserError: a number out of range.
    """

    directory: str = ""
    side: int = 0

    def visual_questions(self, split: str) -> Asked:
        """Reads the questions of `split` (from JSON or the packed form) about its share of the
        images, and returns them as `Asked`, with a function that loads these images.

        Raises:
          UserError: a file that is missing or damaged, a question in another form, or about an image
            that is not there.
        """
        folder, root = "test" if split == "test" else "train", expanded(self.directory)
        if (root / folder / "questions.json").exists():
            path, rows = root / folder / "questions.json", _listed(root / folder / "questions.json")
            ids = sorted({number for _, _, number in rows})
            files = [root / folder / "images" / f"{number}.png" for number in ids]
            images: Callable[[Sequence[int]], np.ndarray] = lambda chosen: _read(  # noqa: E731
                [files[row] for row in chosen], self.side, False
            )
        else:
            path = find_file(self.directory, f"{folder}_questions.tsv")
            rows = _table(path)
            packed = find_file(self.directory, f"{folder}_images.npz")
            arrays = arrays_of(packed)
            ids = array_of(arrays, packed, "ids").tolist()
            pixels = array_of(arrays, packed, "images")
            _check_packed(packed, pixels, ids)
            images = lambda chosen: np.stack(  # noqa: E731
                [resized(pixels[row], self.side) for row in chosen]
            )
        chosen = self.part(split, range(len(ids)), own=False)
        row_of = {ids[row]: number for number, row in enumerate(chosen)}
        all_ids, questions = {*ids}, []
        for number, (text, answer, image) in enumerate(rows, 1):
            if image not in all_ids:
                raise UserError(
                    f"{path}: question {number} is about image {image}, which is not there"
                )
            if image in row_of:
                questions.append(Question(row_of[image], text, answer))
        return Asked(questions, lambda: images(chosen))


@dataclass(frozen=True)
class ImageQuestions(Resized, SplitFiles):
    """One question for each JSON object of a file, plain, .gz or .xz: the name of an image file,
    PNG or JPEG, a question and its answer. A file is read once, whatever is asked about it.

    Attributes:
      directory: where the files lie, and from where images are named; "" for the current folder.
      train, valid, test: the file of each split, without .gz or .xz.
      image, question, answer: the fields that have these.
      group: a field with a name by which scores are split up; "" for none.
      boxes: a field that says where the answer is to be seen, a list of boxes [first row, first
        column, height, width] in pixels of the image file, which may then have no EXIF
        orientation; "" for none.
      side: height and width to which every image is resized, in pixels; 0 leaves images as they
        are, which must then have one size.
      grey: whether images are read in grey: one channel instead of three.

    Raises:
      UserError: a number out of range.
    """

    train: str = "train.jsonl"
    valid: str = "valid.jsonl"
    test: str = "test.jsonl"
    image: str = "image"
    question: str = "question"
    answer: str = "answer"
    group: str = ""
    boxes: str = ""
    side: int = 64
    grey: bool = False

    def visual_questions(self, split: str) -> Asked:
        """Reads the questions of `split` from a file of JSON lines and returns them as `Asked`,
        with a function that loads the images, each file once.

        Raises:
          UserError: as for `files.ParallelFiles`; a line that is no JSON object, lacks a field, or
            has something else than a text in it, or a box that is none or not within its image;
            with file and line. Images that are missing or damaged, or of different sizes, when they
            are read.
        """
        path = self.path(split)
        row_of: dict[str, int] = {}
        questions, sides = [], []
        for where, record in objects_of(path):
            name, text, answer = (
                text_of(record, field, where) for field in (self.image, self.question, self.answer)
            )
            group = text_of(record, self.group, where) if self.group else ""
            if self.boxes and name not in row_of:
                path = expanded(self.directory) / name
                sides.append(upright_size(path, f"{path} ({where})"))
            row = row_of.setdefault(name, len(row_of))
            boxes = self._boxes(record, sides[row], where) if self.boxes else ()
            questions.append(Question(row, text, answer, group, boxes=boxes))
        files = [expanded(self.directory) / name for name in row_of]
        return Asked(questions, lambda: _read(files, self.side, self.grey))

    def _boxes(
        self, record: Mapping[str, Any], sides: tuple[int, int], where: str
    ) -> tuple[Box, ...]:
        """Returns the boxes in a record as (row, column, height, width) in whole pixels of the
        resized image, rounded outwards, given the `sides` (height, width) of the image file; raises
        `UserError` for a box of another form or outside the image.
        """
        cell, height_width = record.get(self.boxes), np.array(sides)
        if not isinstance(cell, list) or not all(_is_box(box) for box in cell):
            raise UserError(
                f"{where}: field {self.boxes!r} is {cell!r}; expected a list of boxes, each [first"
                " row, first column, height, width]"
            )
        boxes = np.array(cell, float).reshape(-1, 2, 2)
        begin, end = boxes[:, 0], boxes.sum(axis=1)
        for number in np.flatnonzero((begin < 0).any(axis=1) | (end > height_width).any(axis=1)):
            raise UserError(
                f"{where}: the box {boxes[number].ravel().tolist()} is not within the"
                f" {sides[0]} x {sides[1]} pixels of its image"
            )
        if self.side:
            begin, end = begin * self.side / height_width, end * self.side / height_width
        first, last = np.floor(begin).astype(int), np.ceil(end).astype(int)
        return tuple(map(tuple, np.hstack([first, last - first]).tolist()))


def _is_box(value: Any) -> bool:
    """Returns whether a value is a box: a list of four numbers, the last two above 0."""
    numbers = isinstance(value, list) and all(type(side) in (int, float) for side in value)
    return numbers and len(value) == 4 and min(value[2:]) > 0


def _read(files: Sequence[Path], side: int, grey: bool) -> np.ndarray:
    """Returns image files as uint8 [N,H,W,C], see `decoded`."""
    return decoded(files, lambda path: read_image(path, side, grey), (side, grey))


def _listed(path: Path) -> list[tuple[str, str, int]]:
    """Reads a JSON file and returns its (question, answer, image number) rows; raises `UserError`
    unless it is a list of such rows, not empty.
    """
    rows = parse_json(contents(path), str(path))
    if not isinstance(rows, list):
        raise UserError(f"{path} has a {type(rows).__name__}; expected a list")
    if not rows:
        raise UserError(f"{path} has no question")
    return [_row(row, f"{path}: question {number}") for number, row in enumerate(rows, 1)]


def _row(row: Any, where: str) -> tuple[str, str, int]:
    """Returns an entry of a JSON list as (question, answer, image number); raises `UserError` if it
    has another form.
    """
    if not (isinstance(row, list) and [type(cell) for cell in row] == [str, str, int]):
        raise UserError(f"{where} is {row!r}; expected [question, answer, number of the image]")
    return row[0], row[1], row[2]


def _table(path: Path) -> list[tuple[str, str, int]]:
    """Reads a table with the columns question, answer and image_id, and returns its rows as
    (question, answer, image number); raises `UserError` for another form.
    """
    (_, header), *rows = split_lines(read_lines(path, "\r"), "tab", "")
    for name in _COLUMNS:
        if header.count(name) != 1:
            raise UserError(f"{path} has no column {name!r}, or two; {nearest(name, header)}")
    check_widths([Row(1, header), *rows], str(path))
    columns = [header.index(name) for name in _COLUMNS]
    questions = []
    for number, cells in filter(lambda row: row.cells, rows):
        question, answer, image = (cells[column].strip() for column in columns)
        if not re.fullmatch("[0-9]{1,18}", image):
            raise UserError(f"{path}, line {number}: image_id is {image!r}; expected a number")
        questions.append((question, answer, int(image)))
    return questions


def _check_packed(path: Path, images: np.ndarray, ids: list[Any]) -> None:
    """Raises `UserError` unless the images of a file are uint8 [N,H,W,C] with as many ids."""
    if images.dtype != np.uint8 or images.ndim != 4 or len(images) != len(ids):
        raise UserError(
            f"{path}: images is {images.dtype} {list(images.shape)}, ids has {len(ids):,} numbers;"
            " expected uint8 [N,H,W,C] and N"
        )
