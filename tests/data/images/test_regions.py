"""Images with all of their objects as columns; images with the class of every pixel, from folders of
masks. Sources not as agreed are in `test_dataset.py`.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attnlab.data import SOURCES
from attnlab.data.images.annotated import Boxed
from attnlab.data.images.regions import BoxedData, MaskFolder, SegmentedData
from tests.data.readers.turning import turned
from tests.refusals import check_refused

SCENES = {
    **{"name": "scenes", "examples": 12, "valid": 5, "test": 3, "side": 20, "grid": 2},
    **{"small": 3, "large": 3, "most": 2, "jitter": 1},
}


@pytest.mark.quick
def test_columns_are_what_the_source_says() -> None:
    """Boxes as shares of the image by their middles, padded to as many as an image has."""
    data = BoxedData.load(SCENES)
    given = BoxedData.of_config(SCENES).objects("train")
    batch = data.examples["train"].batch(np.arange(-1, 12), 1)
    assert batch["image"].shape == (13, 20, 20, 3) and batch["real"].tolist() == [0] + [1] * 12
    assert not batch["labels"][0].any() and not batch["boxes"][0].any()
    for row, (labels, boxes) in enumerate(zip(given.labels, given.boxes, strict=True), 1):
        count = len(labels)
        names = [data.learned.classes[one - 1] for one in batch["labels"][row][:count]]
        assert names == list(labels) and not batch["labels"][row][count:].any()
        actual = batch["boxes"][row][:count] * 20
        np.testing.assert_allclose(actual[:, :2] - actual[:, 2:] / 2, boxes[:, :2], atol=1e-5)
        np.testing.assert_allclose(actual[:, 2:], boxes[:, 2:], atol=1e-5)
    objects = sum(map(len, given.labels))
    words = f"12 images of 20 x 20 x 3; 4 classes; {objects} objects, up to 2 of one"
    assert data.about("train") == words


def test_an_image_without_objects_is_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = [np.array([[1, 2, 3, 4]]), np.zeros((0, 4), int)]
    given = Boxed(np.zeros((2, 8, 10, 3), np.uint8), [["a"], []], boxes, ("a", "b"))
    source = SimpleNamespace(objects=lambda split: given)
    monkeypatch.setattr(BoxedData, "of_config", lambda data: source)
    batch = BoxedData.load({"name": "given"}).examples["train"].batch(np.arange(2), 1)
    assert batch["real"].tolist() == [1, 1] and batch["labels"].tolist() == [[1], [0]]
    np.testing.assert_allclose(batch["boxes"][0, 0], [2.5 / 8, 4 / 10, 3 / 8, 4 / 10])


CLASSES = ("road", "car")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten images of training and two of the test, whose first channel is 50 times their mask."""
    rng = np.random.default_rng(0)
    for split, count in (("train", 10), ("test", 2)):
        for below in ("images", "masks"):
            (tmp_path / split / below).mkdir(parents=True)
        for number in range(count):
            mask = rng.integers(0, 3, size=(6, 6)).astype(np.uint8)
            image = np.stack([50 * mask, mask, mask], axis=-1)
            mask[0, 0] = 255
            Image.fromarray(image).save(tmp_path / split / "images" / f"{number}.png")
            Image.fromarray(mask).save(tmp_path / split / "masks" / f"{number}.png")
    return tmp_path


def made(folder: Path, **fields: Any) -> MaskFolder:
    given = {"directory": str(folder), "classes": CLASSES, "side": 6, **fields}
    return SOURCES.resolve("mask_folder")(**given)  # type: ignore[no-any-return]


@pytest.mark.quick
def test_masks_lie_on_their_images(folder: Path) -> None:
    source = made(folder)
    actual = {split: source.masks(split) for split in ("train", "valid", "test")}
    assert [len(one.images) for one in actual.values()] == [9, 1, 2]
    for images, masks, classes in actual.values():
        assert classes == CLASSES and (masks[:, 0, 0] == -1).all()
        inside = masks >= 0
        np.testing.assert_array_equal(images[..., 0][inside], 50 * masks[inside])
    one = actual["valid"].images[0]
    assert not any((one == other).all() for other in actual["train"].images)


@pytest.mark.parametrize("below", ["images", "masks"])
def test_an_image_that_is_to_be_turned_is_refused(folder: Path, below: str) -> None:
    turned(folder / "test" / below / "1.png", 3)
    words = f"{below}/1.png has the EXIF orientation 3, .* upright"
    check_refused(words, made(folder).masks, "test")


def test_a_mask_is_resized_without_new_numbers_and_may_have_a_palette(folder: Path) -> None:
    large = np.kron(np.array([[0, 1], [2, 0]], np.uint8), np.ones((6, 6), np.uint8))
    paletted = Image.fromarray(large, "L").convert("P")
    paletted.putdata(large.ravel().tolist())
    paletted.save(folder / "test" / "masks" / "0.png")
    Image.fromarray(np.repeat(large[..., None], 3, -1)).save(folder / "test" / "images" / "0.png")
    np.testing.assert_array_equal(made(folder).masks("test").masks[0], large[::2, ::2])


def test_a_run_reads_masks_as_bytes_and_keeps_the_classes(folder: Path, tmp_path: Path) -> None:
    node = {"name": "mask_folder", "directory": str(folder), "classes": CLASSES, "side": 6}
    data = SegmentedData.load(node)
    assert data.learned.classes == ("ground", *CLASSES) and data.learned.shape == (6, 6, 3)
    batch = data.examples["train"].batch(np.array([0, -1]), 1)
    assert batch["mask"].dtype == np.uint8 and not batch["mask"][1].any()
    np.testing.assert_array_equal(batch["mask"][0], made(folder).masks("train").masks[0] + 1)
    assert data.about("valid") == "1 images of 6 x 6 x 3; 3 classes of pixels"
    data.save(tmp_path)
    again = SegmentedData.load(node, None, tmp_path, ("test",))
    Image.fromarray(np.full((6, 6), 1, np.uint8)).save(folder / "test" / "masks" / "0.png")
    assert SegmentedData.load(node, None, tmp_path, ("test",)).fingerprints != again.fingerprints


def number(value: int, *shape: int) -> Callable[[Path], None]:
    """Writes another mask, of one number."""
    return lambda path: Image.fromarray(np.full(shape, value, np.uint8)).save(path)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (number(7, 6, 6), r"0.png has the number 7; config.data.classes names 1 ... 2"),
        (Path.unlink, r"cannot find .*0.png"),
        (number(0, 5, 7), r"0.png is 5 x 7 pixels, its image 6 x 6"),
        (number(0, 6, 6, 3), r"0.png has the mode RGB; expected one channel or a palette"),
        (lambda path: path.write_bytes(b"no picture"), r"0.png is damaged or no image"),
        (lambda path: shutil.rmtree(path.parents[1] / "images"), r"cannot find the folder"),
        (lambda path: [*map(Path.unlink, path.parents[1].glob("images/*"))], r"image .*; fill it$"),
    ],
)
def test_a_folder_that_is_not_as_agreed(folder: Path, harm: Any, words: str) -> None:
    harm(folder / "test" / "masks" / "0.png")
    check_refused(words, made(folder).masks, "test")


def test_classes_have_names_of_their_own(folder: Path) -> None:
    for classes in (("road", "road"), ("ground",)):
        check_refused("names must differ, also from 'ground'", made, folder, classes=classes)
