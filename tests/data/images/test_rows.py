"""Images in tables: names of files or bytes; with labels, captions, boxes, masks or questions."""

import dataclasses
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from attnlab.data import SPLITS
from attnlab.data.images.regions import BoxedData
from attnlab.data.images.rows import ImageRows
from tests.data.readers.turning import turned
from tests.refusals import check_refused

PAGE = Path(__file__).parents[3] / "docs" / "extending" / "data.md"
COLOURS = ("red", "blue", "red")


def png(colour: str) -> bytes:
    Image.new("RGB", (4, 3), colour).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    monkeypatch.setenv("ATTNLAB_CACHE", str(tmp_path / "cache"))
    (tmp_path / "images").mkdir()
    for colour in COLOURS:
        (tmp_path / "images" / f"{colour}.png").write_bytes(png(colour))
    return [{"image": f"images/{c}.png", "label": c, "caption": f"a {c}"} for c in COLOURS]


def test_every_task_of_images(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """From names, and from the bytes that `datasets` has; an image that is named twice is one."""
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source = ImageRows(str(tmp_path), side=2)
    images, labels = source.images("train")
    assert [*labels] == [*COLOURS] and images.shape == (3, 2, 2, 3) and source.shape == (2, 2, 3)
    assert images[:, 0, 0].tolist() == [[255, 0, 0], [0, 0, 255], [255, 0, 0]]
    assert source.captions("train").captions == ["a red", "a blue", "a red"]
    packed = [row | {"image": {"bytes": png(row["label"]), "path": None}} for row in rows]
    (tmp_path / "packed").mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(packed), tmp_path / "packed" / "train.parquet")
    for _ in range(2):
        again = ImageRows(str(tmp_path / "packed"), side=2).images("train")
        assert np.array_equal(again.images, images) and again.labels == labels


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image": "images/green.png"}, "train.jsonl, line 1: .*cannot find|cannot find"),
        ({"image": "a\0.png"}, "line 1: an image is the name of a file or bytes"),
        ({"image": 3}, "line 1: an image is the name of a file or bytes, not 3"),
        ({"label": None}, "line 1: column 'label' is blank"),
    ],
)
def test_what_is_no_image(
    rows: list[dict[str, Any]], change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps(rows[0] | change))
    check_refused(message, ImageRows(str(tmp_path)).images, "train")
    check_refused("config.data.side=-1 must be in 0", ImageRows, side=-1)


METHODS = {"boxes": ("objects", 2), "mask": ("masks", 1), "caption": ("captions", 1)}
FATES = r"""
boxes | taken | xywh | [[1, 0, 2, 3]] | [[0, 0.5, 2, 1]]
boxes | taken | xyxy | [[1, 0, 3, 3]] | [[0, 0.5, 2, 1]]
boxes | taken | of none | [] | []
boxes | taken | an object | [{"bbox": [0, 0, 4, 3], "category": 7}] | [[0, 0, 2, 2]]
boxes | translated | cut off | [[2, -0.5, 3, 3.5]] | [[0, 1, 2, 1]]
boxes | translated | no extent | [[1, 0, 0, 3]] | []
boxes | refused | neither convention | [[1, 0, 2, 3]] | config.data.boxes must say
boxes | refused | beyond | [[1, 0, 2, 5]] | row 1, boxes as xywh: the box of '0'
boxes | refused | negative extent | [[3, 0, -1, 3]] | row 1, .*-1 wide, 3 high. is not within
boxes | refused | NaN | [[1, NaN, 2, 3]] | row 1, .*row nan
boxes | refused | shares | [[0.5, 0, 0.5, 1]] | row 1: .* write pixels, not shares
boxes | refused | three numbers | [[1, 2, 2]] | row 1: bbox is .*4 numbers, xywh
boxes | refused | more boxes | {"bbox": [[1, 0, 2, 3]], "category": []} | row 1 has boxes .* a category
boxes | refused | null | {"bbox": null, "category": []} | row 1: column 'objects.bbox' is blank
boxes | refused | a blank | {"bbox": [[1, 0, 2, 3]], "category": [" "]} | row 1: .* has a blank text
mask | taken | 0 for the ground | [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]] | [[1, 0], [1, 0]]
mask | taken | 255 for open | [[255, 255, 1, 1], [2, 2, 1, 1], [2, 2, 1, 1]] | [[-1, 1], [2, 1]]
mask | translated | nearest pixel | [[0, 2, 0, 2], [0, 2, 0, 2], [0, 2, 0, 2]] | [[2, 2], [2, 2]]
mask | refused | no classes | "images/red.png" | config.data.classes is empty
mask | refused | beyond them | [[3, 3, 3, 3], [3, 3, 3, 3], [3, 3, 3, 3]] | row 1: .* the number 3
mask | refused | another size | [[0, 0, 0]] | row 1: .* is 1 x 3 pixels, its image 3 x 4
caption | taken | a list of texts | ["a", "b"] | ["a", "b"]
caption | translated | single blanks | [" a \n b"] | ["a b"]
caption | refused | a blank text | ["a", ""] | row 1: column 'caption' has a blank text
answer | translated | numbers | 2.0 | [[0, "a?", "2", "", "", []]]
answer | refused | a list | ["b"] | row 1: column 'answer' is list, not a text
"""


@pytest.mark.parametrize("line", FATES.strip().splitlines())
def test_what_becomes_of_each_cell(rows: list[dict[str, Any]], line: str, tmp_path: Path) -> None:
    """As the page says it; boxes and masks in pixels of the resized image."""
    column, fate, words, cell, expected = line.split(" | ")
    (message,) = re.findall(rf"^\| columns? `.*?\b{column}`.*", PAGE.read_text(), re.M)
    assert words in message.split("|")[2 + ["taken", "translated", "refused"].index(fate)]
    row, value = rows[0] | {"question": "a?"}, json.loads(cell)
    if column == "mask" and isinstance(value, list):
        Image.fromarray(np.uint8(value)).save(tmp_path / "images" / "mask.png")
        value = "images/mask.png"
    if column == "boxes" and isinstance(value, list) and words != "an object":
        value = {"bbox": value, "category": [*range(len(value))]}
    row["objects" if column == "boxes" else column] = value
    parquet.write_table(pyarrow.Table.from_pylist([row]), tmp_path / "train.parquet")
    boxes, classes = "xyxy" if words == "xyxy" else "xywh", ("road", "car")
    boxes, classes = ("", ()) if words in ("neither convention", "no classes") else (boxes, classes)
    method, at = METHODS.get(column, ("visual_questions", 0))
    read = getattr(ImageRows(str(tmp_path), side=2, boxes=boxes, classes=classes), method)
    if fate == "refused":
        check_refused(expected, read, "train")
        return
    for _ in range(2):  # from the files, and from the cache
        cells = json.loads(json.dumps(read("train")[at], default=np.ndarray.tolist))
        assert (cells if at < 2 and column != "mask" else cells[0]) == json.loads(expected)


def test_objects_are_the_data_of_a_run(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """Classes are those of training; an image that is turned is refused, where boxes are."""
    rows = [row | {"box": [[0, 0, 2, 3]], "kind": [n]} for n, row in enumerate(rows)]
    for split, part in (("train", rows), ("valid", rows[1:2])):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(map(json.dumps, part)))
    columns = {"boxes": "box", "categories": "kind"}
    node = {"name": "image_rows", "directory": str(tmp_path), "boxes": "xywh", "columns": columns}
    assert BoxedData.load(node).labels("valid").tolist() == [[2]]
    turned(tmp_path / "images" / "red.png", 6)
    check_refused("line 1: .*red.png has the EXIF orientation 6", BoxedData.load, node)


def test_equal_images_are_drawn_together(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    """Under whatever names; by name, as in runs of before, not."""
    names = [f"{n}.png" for n in range(120)]
    for n, name in enumerate(names):
        (tmp_path / name).write_bytes(png(f"#0000{n // 3:02x}"))
    lines = [json.dumps({"image": name, "label": n // 3}) for n, name in enumerate(names)]
    (tmp_path / "all.jsonl").write_text("\n".join(lines))
    source = ImageRows(str(tmp_path), "all")
    labels = [source.images(split).labels for split in SPLITS]
    assert sum(map(len, labels)) == 120 and all(0 < len({*x}) * 3 == len(x) for x in labels)
    valid = [str(n // 3) for n, name in enumerate(names) if 80 <= source._percent(name) < 90]
    before = dataclasses.replace(source, drawn_by="name").images("valid").labels
    assert before == valid and len({*valid}) * 3 > len(valid)
