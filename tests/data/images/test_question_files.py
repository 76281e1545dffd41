"""Questions from files: both forms of easy-VQA give the same, JSON lines name their images, and
whatever is wrong is one line.
"""

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data.images.question_files import EasyVqa, ImageQuestions
from tests.data.readers.turning import turned
from tests.refusals import check_refused

COLOURS = {"red": (250, 0, 0), "blue": (0, 0, 250)}
TRAIN = [("what colour is it?", ("red", "blue")[n % 2], n) for n in (0, 1, 2, 3)]
TRAIN += [("is it red?", ("yes", "no")[n % 2], n) for n in (0, 1, 2, 3)]
TEST = [("is it red?", "yes", 7)]


def pixels(number: int, split: str) -> np.ndarray:
    image = np.zeros((4, 6, 3), np.uint8)
    image[:] = COLOURS["red" if split == "test" or number % 2 == 0 else "blue"]
    image[0, 0] = number
    return image


def as_folder(root: Path) -> Path:
    for split, rows in (("train", TRAIN), ("test", TEST)):
        (root / split / "images").mkdir(parents=True)
        (root / split / "questions.json").write_text(json.dumps(rows))
        for number in {row[2] for row in rows}:
            Image.fromarray(pixels(number, split)).save(root / split / f"images/{number}.png")
    return root


def as_tables(root: Path) -> Path:
    root.mkdir(exist_ok=True)
    for split, rows in (("train", TRAIN), ("test", TEST)):
        lines = ["question\tanswer\timage_id", *("\t".join(map(str, row)) for row in rows)]
        (root / f"{split}_questions.tsv.xz").write_bytes(lzma.compress("\n".join(lines).encode()))
        ids = sorted({row[2] for row in rows})
        images = np.stack([pixels(number, split) for number in ids])
        np.savez(root / f"{split}_images.npz", images=images, ids=np.array(ids, np.int32))
    return root


def check_unread(source: Any, split: str, words: str) -> None:
    check_refused(words, lambda: source.visual_questions(split).images())


@pytest.mark.quick
def test_both_forms_of_easy_vqa_give_the_same(tmp_path: Path) -> None:
    """A quarter of the training images is held out, with all that is asked about them."""
    folders = as_folder(tmp_path / "a"), as_tables(tmp_path / "b")
    sources = [EasyVqa(directory=str(folder), held_out=0.25) for folder in folders]
    seen = set()
    for split, count in (("train", 6), ("valid", 2), ("test", 1)):
        one, other = (source.visual_questions(split) for source in sources)
        assert one.questions == other.questions and len(one.questions) == count
        images = one.images()
        np.testing.assert_array_equal(images, other.images())
        for row in one.questions:
            red = tuple(images[row.image, -1, -1]) == COLOURS["red"]
            assert row.answer in (("red", "yes") if red else ("blue", "no"))
        seen |= {(split, *image[0, 0]) for image in images}
    assert len({one[1:] for one in seen if one[0] != "test"}) == 4
    small = EasyVqa(directory=str(tmp_path / "b"), side=3)
    assert small.visual_questions("test").images().shape == (1, 3, 3, 3) == (1, *small.shape)  # type: ignore[misc]


def test_what_is_wrong_with_easy_vqa_is_one_line(tmp_path: Path) -> None:
    source = EasyVqa(directory=str(as_folder(tmp_path)), held_out=0.25)
    (tmp_path / "test/images/7.png").write_bytes(b"no image")
    check_unread(source, "test", "7.png is damaged or no image")
    (tmp_path / "test/images/7.png").rename(tmp_path / "test/images/8.png")
    check_unread(source, "test", "cannot find .*7.png")
    Image.fromarray(pixels(0, "train")[:3]).save(tmp_path / "train/images/1.png")
    check_unread(source, "train", "1.png is 3 x 6 pixels, .*4 x 6; set config.data.side to")
    path = tmp_path / "train/questions.json"
    path.write_text('[["is it red?", "yes"]]')
    check_unread(source, "train", r"questions.json: question 1 is .*expected \[question, answer")
    path.write_text("{}")
    check_unread(source, "train", "has a dict; expected a list")
    path.write_text("[]")
    check_unread(source, "train", "questions.json has no question")
    path.write_text("[")
    check_unread(source, "train", "questions.json: no JSON")
    path.unlink()
    check_unread(source, "train", "cannot find .*train_questions.tsv")
    for one in ({"side": -1}, {"held_out": 1.0}):
        check_refused(f"config.data.{next(iter(one))}", EasyVqa, **one)


def test_what_is_wrong_with_tables_is_one_line(tmp_path: Path) -> None:
    source = EasyVqa(directory=str(as_tables(tmp_path)), held_out=0.25)
    path = tmp_path / "train_questions.tsv"

    def write(*lines: str) -> None:
        path.write_text("\n".join(lines) + "\n")

    write("question\tanswer\tnumber", "a\tb\t1")
    check_unread(source, "train", "has no column 'image_id'")
    write("question\tanswer\timage_id", "a\tb")
    check_unread(source, "train", r"line 2: 2 column\(s\), line 1 has 3")
    write("question\tanswer\timage_id", "a\tb\tone")
    check_unread(source, "train", "line 2: image_id is 'one'; expected a number")
    write("question\tanswer\timage_id", "a\tb\t9")
    check_unread(source, "train", "question 1 is about image 9, which is not there")
    np.savez(tmp_path / "train_images.npz", images=np.zeros((2, 4, 4, 3)), ids=np.arange(2))
    check_unread(source, "train", r"images is float64 \[2, 4, 4, 3\], ids has 2 numbers")
    np.savez(tmp_path / "train_images.npz", images=np.zeros((2, 4, 4, 3), np.uint8))
    check_unread(source, "train", "has no array 'ids'")


def test_json_lines_name_their_images(tmp_path: Path) -> None:
    """An image that is asked about twice is read once."""
    for number in (0, 1):
        Image.fromarray(pixels(number, "train")).save(tmp_path / f"{number}.png")
    rows = [
        {"image": "1.png", "question": "which?", "answer": "blue", "sort": "colour"},
        {"image": "0.png", "question": "which?", "answer": "red", "sort": "colour"},
        {"image": "1.png", "question": "is it?", "answer": "yes", "sort": "other"},
    ]
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    source = ImageQuestions(directory=str(tmp_path), side=5, group="sort")
    asked = source.visual_questions("train")
    expected = [*((0, "blue", "colour"), (1, "red", "colour"), (0, "yes", "other"))]
    assert [(one.image, one.answer, one.group) for one in asked.questions] == expected
    images = asked.images()
    assert images.shape == (2, *source.shape) == (2, 5, 5, 3)
    assert tuple(images[0, 4, 4]) == COLOURS["blue"]
    grey = ImageQuestions(directory=str(tmp_path), side=0, grey=True)
    assert grey.shape is None and grey.visual_questions("train").images().shape == (2, 4, 6, 1)

    check_unread(ImageQuestions(str(tmp_path), answer="kind"), "train", "line 1: no field 'kind'")
    path.write_text('{"image": "1.png", "question": "", "answer": "a"}\n')
    check_unread(grey, "train", "line 1: field 'question' is ''; expected a text")
    path.write_text("nothing\n")
    check_unread(grey, "train", "line 1: no JSON")
    path.write_text('{"image": "2.png", "question": "which?", "answer": "a"}\n')
    check_unread(grey, "train", "cannot find .*2.png")
    check_refused("config.data.side=5000", ImageQuestions, side=5000)


def test_boxes_of_json_lines_follow_the_size_of_the_image(tmp_path: Path) -> None:
    """Images of 4 x 6 pixels, read as 8 x 8."""
    Image.fromarray(pixels(0, "train")).save(tmp_path / "0.png")
    path = tmp_path / "train.jsonl"

    def write(where: Any) -> None:
        row = {"image": "0.png", "question": "which?", "answer": "red", "where": where}
        path.write_text(json.dumps(row) + "\n")

    def found(side: int) -> tuple[Any, ...]:
        source = ImageQuestions(directory=str(tmp_path), side=side, boxes="where")
        return source.visual_questions("train").questions[0].boxes

    write([[1, 3, 2, 3], [0, 0, 4, 6]])
    assert found(0) == ((1, 3, 2, 3), (0, 0, 4, 6))
    assert found(8) == ((2, 4, 4, 4), (0, 0, 8, 8))
    assert found(9) == ((2, 4, 5, 5), (0, 0, 9, 9))
    write([])
    assert found(8) == ()
    expected = ImageQuestions(directory=str(tmp_path), boxes="where")
    for where, words in (
        ([[1, 3, 2, 4]], r"the box \[1.0, 3.0, 2.0, 4.0\] is not within the 4 x 6 pixels of its"),
        ([[-1, 3, 2, 2]], "is not within the 4 x 6 pixels"),
        ([[1, 3, 2, 0]], "line 1: field 'where' is .*; expected a list of boxes"),
        ([[1, 3, 2]], "expected a list of boxes"),
        (None, "field 'where' is None; expected a list of boxes"),
    ):
        write(where)
        check_unread(expected, "train", words)
    write([[1, 3, 2, 3]])
    turned(tmp_path / "0.png", 8)
    check_unread(expected, "train", "0.png .*, line 1. has the EXIF orientation 8")
    (tmp_path / "0.png").unlink()
    Image.fromarray(pixels(0, "train")).save(tmp_path / "01.png")
    check_unread(expected, "train", r"cannot find .*0.png \(.*line 1\); did you mean '01.png'")


@pytest.mark.parametrize("height", [147, 49, 61])
def test_the_box_of_a_whole_image_is_the_whole_image(tmp_path: Path, height: int) -> None:
    Image.fromarray(np.zeros((height, 50, 3), np.uint8)).save(tmp_path / "0.png")
    row = {"image": "0.png", "question": "a", "answer": "b", "where": [[0, 0, height, 50]]}
    (tmp_path / "train.jsonl").write_text(json.dumps(row) + "\n")
    for side in (10, 23, 64):
        source = ImageQuestions(directory=str(tmp_path), side=side, boxes="where")
        assert source.visual_questions("train").questions[0].boxes == ((0, 0, side, side),)
