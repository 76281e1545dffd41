"""Boxes and captions in the form of COCO lie on their objects after resizing; files that are not so
are refused in one line.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data import SPLITS
from attnlab.data.images.annotated import Boxed, Captioned
from attnlab.data.images.coco import CocoBoxes, CocoCaptions
from attnlab.data.images.regions import BoxedData
from tests.data.readers.turning import turned
from tests.refusals import check_refused

HEIGHT, WIDTH = 8, 16


def write(folder: Path, name: str, count: int, **changed: Any) -> None:
    """Images that are white within one box and black elsewhere; every third has another object, a
    crowd and a box without an extent too.
    """
    (folder / name).mkdir(exist_ok=True)
    images, annotations = [], []
    for number in range(count):
        left, top, wide, high = 2 * (number % 4), 2, 8, 4
        pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        pixels[top : top + high, left : left + wide] = 255
        Image.fromarray(pixels).save(folder / name / f"{number}.png")
        images.append({"id": 10 + number, "file_name": f"{number}.png"})
        mine = {"image_id": 10 + number, "category_id": 7}
        annotations.append({**mine, "bbox": [left, top, wide, high], "iscrowd": 0})
        if number % 3 == 0:
            annotations.append({**mine, "category_id": 3, "bbox": [0, 0, 16.5, 8]})
            annotations.append({**mine, "bbox": [0, 0, 1, 1], "iscrowd": 1})
            annotations.append({**mine, "bbox": [3, 3, 0, 1]})
    categories = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}, {"id": 5, "name": "owl"}]
    content = {"images": images, "annotations": annotations, "categories": categories, **changed}
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "annotations" / f"instances_{name}.json").write_text(json.dumps(content))


def tell(folder: Path, name: str, count: int, **changed: Any) -> None:
    """Captions of the images of `write`: image k has k mod 3 + 1 of them, in any order."""
    write(folder, name, count)
    images = [{"id": 10 + number, "file_name": f"{number}.png"} for number in range(count)]
    annotations = [
        {"id": 9, "image_id": 10 + number, "caption": f" Image {number},\n text {text} "}
        for text in range(3)
        for number in reversed(range(count))
        if text <= number % 3
    ]
    content = {"images": images, "annotations": annotations, **changed}
    (folder / "annotations" / f"captions_{name}.json").write_text(json.dumps(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tell(tmp_path, "some", 9)
    tell(tmp_path, "others", 2)
    return tmp_path


def node(folder: Path, **fields: Any) -> dict[str, Any]:
    return {"directory": str(folder), "train": "some", "test": "others", "side": 8, **fields}


def captions_of(folder: Path, split: str = "test", **fields: Any) -> Captioned:
    return CocoCaptions(**node(folder, **fields)).captions(split)


def boxes_of(folder: Path, split: str = "test", **fields: Any) -> Boxed:
    return CocoBoxes(**node(folder, **fields)).objects(split)


READ = {"instances": boxes_of, "captions": captions_of}


@pytest.mark.quick
def test_boxes_lie_on_their_objects(folder: Path) -> None:
    """Half as wide as before, as high, in images and boxes; what lies half a pixel outside is cut."""
    actual = [boxes_of(folder, split) for split in SPLITS]
    assert [len(one.images) for one in actual] == [8, 1, 2]
    for images, labels, boxes, classes, _ in actual:
        assert classes == ("dog", "owl", "cat")
        for image, names, mine in zip(images, labels, boxes, strict=True):
            row, column, high, wide = mine[0].astype(int)
            assert (image[row : row + high, column + 1 : column + wide - 1] == 255).all()
            assert names[0] == "cat" and (high, wide) == (4, 4)
            if len(names) > 1:
                assert names[1:] == ["dog"]
                np.testing.assert_array_equal(mine[1], [0, 0, 8, 8])
    assert sum(len(labels) == 2 for one in actual for labels in one.labels) == 4


def test_a_validation_split_of_its_own_leaves_training_whole(folder: Path) -> None:
    for read, train, valid in ((boxes_of, 9, 2), (captions_of, 18, 3)):
        assert len(read(folder, "train", valid="others").images) == train
        assert read(folder, "valid", valid="others", grey=True).images.shape == (valid, 8, 8, 1)
    assert CocoBoxes(**node(folder, grey=True)).shape == (8, 8, 1)


def test_a_run_reads_them(folder: Path) -> None:
    data = BoxedData.load({"name": "coco_boxes", **node(folder)}, splits=("train", "valid", "test"))
    assert data.learned.classes == ("dog", "owl", "cat") and data.most_objects("train") == 2
    np.testing.assert_allclose(data.boxes("test")[1, 0], [0.5, 6 / 16, 0.5, 0.5])
    (boxes, classes, crowd), _ = data.rows["test"]
    np.testing.assert_allclose(boxes[0], [0.5, 4 / 16, 0.5, 0.5])
    assert classes.tolist() == [2, 0, 2, 2] and crowd.tolist() == [False, False, True, False]
    assert (boxes[crowd] == [1 / 16, 1 / 32, 1 / 8, 1 / 16]).all() and boxes[3, 3] == 0
    path = folder / "annotations" / "instances_others.json"
    path.write_text(path.read_text().replace('"bbox": [0, 0, 1, 1]', '"bbox": [0, 0, 1, 2]'))
    other = BoxedData.load({"name": "coco_boxes", **node(folder)}, splits=("test",))
    assert other.fingerprints != {"test": data.fingerprints["test"]}


BOX = {"image_id": 10, "category_id": 7, "bbox": [1, 1, 2, 2]}
TEXT = {"image_id": 10, "caption": "words"}
OF_BOXES: list[tuple[dict[str, Any], str]] = [
    ({"annotations": [{**BOX, "bbox": [10, 2, 8, 4]}]}, "0.png: the box of 'cat' .*not within"),
    ({"annotations": [{**BOX, "bbox": [-2, 2, 8, 4]}]}, r"column -2, .* not within 8 x 16"),
    ({"annotations": [{**BOX, "bbox": [1, 1, -1, 4]}]}, "-1 wide, 4 high. is not within"),
    ({"annotations": [{**BOX, "bbox": [1, 1, 2]}]}, r"annotation 1: bbox is \[1, 1, 2\]; exp"),
    ({"annotations": [BOX, {**BOX, "image_id": 3}]}, "annotation 2 is of image 3, which the"),
    ({"annotations": [{**BOX, "category_id": 9}]}, "is of category 9, which the file does not"),
    ({"annotations": [3]}, "annotation 1 is 3; expected an object"),
    ({"annotations": [{**BOX, "bbox": [1, 1, float("nan"), 2]}]}, "NaN is no finite number"),
    ({"annotations": [{**BOX, "bbox": [1, 1, True, 2]}]}, "annotation 1: bbox is "),
    ({"annotations": [{**BOX, "image_id": True}]}, "annotation 1 has no 'image_id', a number"),
    ({"annotations": [{**BOX, "iscrowd": "0"}]}, "annotation 1: iscrowd is '0'; expected 0 or 1"),
    ({"categories": None}, "has no list 'categories'; expected images, annotations and"),
    ({"images": []}, "'images' is empty"),
    ({"images": [{"id": 10}]}, "image 1 has no 'file_name'"),
    ({"images": [{"id": "10", "file_name": "0.png"}]}, "image 1: id is '10'; expected a whole"),
    ({"images": [{"id": 10, "file_name": "0"}] * 2}, "image 2: '0' has the id of '0', 10"),
    ({"categories": [{"id": one, "name": "cat"} for one in (1, 2)]}, "2 categories .* 'cat'; give"),
    ({"images": [{"id": 10, "file_name": "no.png"}], "annotations": []}, "cannot find .*no.png"),
]
OF_CAPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"annotations": [TEXT]}, "1 of 2 images have no caption, '1.png' .id 11. the first"),
    ({"annotations": [TEXT, {**TEXT, "image_id": 3}]}, "annotation 2 is of image 3, which the"),
    ({"annotations": [{"image_id": 10}]}, "annotation 1: caption is None; expected a text"),
    ({"annotations": [{**TEXT, "caption": " "}]}, "annotation 1: caption is ' '; expected a"),
    ({"annotations": [{"caption": "words"}]}, "annotation 1 has no 'image_id'"),
    ({"annotations": {}}, "has no list 'annotations'; expected images and annotations"),
    ({"images": []}, "'images' is empty"),
]


@pytest.mark.parametrize(
    ("kind", "changed", "words"),
    [*(("instances", *case) for case in OF_BOXES), *(("captions", *case) for case in OF_CAPTIONS)],
)
def test_a_file_not_as_agreed(folder: Path, kind: str, changed: dict[str, Any], words: str) -> None:
    (write if kind == "instances" else tell)(folder, "others", 2, **changed)
    check_refused(words, READ[kind], folder)


def test_boxes_count_in_stored_pixels_unless_the_sizes_say_otherwise(folder: Path) -> None:
    """0.png is 8 x 16 as it is stored, and is to be turned."""
    turned(folder / "others" / "0.png", 6)
    for size, box in (({}, [0, 2, 8, 4]), ({"height": 8, "width": 16}, [0, 2, 8, 4])):
        write_again(folder, box, **size)
        assert boxes_of(folder).boxes[0].tolist() == [[2, 0, 4, 4]]
    write_again(folder, [2, 0, 4, 8], height=16, width=8)
    images, _, boxes, *_ = boxes_of(folder)
    assert boxes[0].tolist() == [[0, 2, 4, 4]] and (images[0, :3, 2:6] == 255).all()
    write_again(folder, [0, 2, 8, 4], height=80, width=160)
    check_refused("0.png has height 80 and width 160, the file is 8 x 16", boxes_of, folder)
    assert captions_of(folder).images[0, 1, 4].tolist() == [255] * 3


def write_again(folder: Path, box: list[int], **size: int) -> None:
    """The annotations of 0.png alone: this box, and a size."""
    path = folder / "annotations" / "instances_others.json"
    content = {**json.loads(path.read_text()), "annotations": [{**BOX, "bbox": box}]}
    content["images"] = [{"id": 10, "file_name": "0.png", **size}]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("kind", ["instances", "captions"])
def test_what_cannot_be_read_is_one_line(folder: Path, kind: str) -> None:
    image = folder / "others" / "1.png"
    path = folder / "annotations" / f"{kind}_others.json"
    for content in (b"no picture", image.read_bytes()[: image.stat().st_size // 2]):
        image.write_bytes(content)
        check_refused(r"1.png is damaged or no image", READ[kind], folder)
    path.write_text(path.read_text()[:-9])
    check_refused(rf"{path.name}: no JSON", READ[kind], folder)
    check_refused(r"cannot find .*_else.json", READ[kind], folder, test="else")
    check_refused(r"config.data.side=0 must be in", READ[kind], folder, side=0)


def test_captions_stand_beside_their_images(folder: Path) -> None:
    """An image is there as often as it has captions, and all of them are in one split."""
    actual = {split: captions_of(folder, split) for split in SPLITS}
    assert actual["test"].captions == ["Image 0, text 0", "Image 1, text 0", "Image 1, text 1"]
    assert actual["test"].images.shape == (3, 8, 8, 3)
    for split, one in actual.items():
        images = boxes_of(folder, split).images
        numbers = [int(text.split(",")[0].split()[1]) for text in one.captions]
        kept = sorted({*numbers})
        assert len(kept) == len(images) and numbers == [k for k in kept for _ in range(k % 3 + 1)]
        for image, number in zip(one.images, numbers, strict=True):
            np.testing.assert_array_equal(image, images[kept.index(number)])
    assert sum(len(actual[split].captions) for split in ("train", "valid")) == 18
