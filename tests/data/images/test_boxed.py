"""Images with all of their objects: columns, what a run keeps, and sources that are not as agreed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from attnlab.data.images.annotated import Boxed
from attnlab.data.images.boxed import BoxedData
from attnlab.errors import UserError

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
        found = batch["boxes"][row][:count] * 20
        np.testing.assert_allclose(found[:, :2] - found[:, 2:] / 2, boxes[:, :2], atol=1e-5)
        np.testing.assert_allclose(found[:, 2:], boxes[:, 2:], atol=1e-5)
    objects = sum(map(len, given.labels))
    words = f"12 images of 20 x 20 x 3; 4 classes; {objects} objects, up to 2 of one"
    assert data.about("train") == words


def test_other_sizes_and_classes_than_those_of_training(tmp_path: Path) -> None:
    BoxedData.load(SCENES).save(tmp_path)
    with pytest.raises(UserError, match="images of 22 x 22 x 3, the training split of 20 x 20 x 3"):
        BoxedData.load({**SCENES, "side": 22}, None, tmp_path, ("test",))
    with pytest.raises(UserError, match="the test split has the classes red circle, .* training"):
        BoxedData.load({**SCENES, "label": "colour_shape"}, None, tmp_path, ("test",))


GIVEN: dict[str, Any] = {
    "images": np.zeros((2, 8, 10, 3), np.uint8),
    "labels": [["a"], []],
    "boxes": [np.array([[1, 2, 3, 4]]), np.zeros((0, 4), int)],
    "classes": ("a", "b"),
}


def given(**fields: Any) -> Any:
    """A source of one object, with some of its fields changed."""
    return SimpleNamespace(objects=lambda split: Boxed(**{**GIVEN, **fields}))


def test_an_image_without_objects_is_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoxedData, "of_config", lambda data: given())
    batch = BoxedData.load({"name": "given"}).examples["train"].batch(np.arange(2), 1)
    assert batch["real"].tolist() == [1, 1] and batch["labels"].tolist() == [[1], [0]]
    np.testing.assert_allclose(batch["boxes"][0, 0], [2.5 / 8, 4 / 10, 3 / 8, 4 / 10])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"boxes": [np.array([[6, 2, 3, 4]]), []]},
            r"the box of 'a' in image 1 \(row 6, column 2, 3 high, 4 wide\) is not within 8 x 10",
        ),
        ({"boxes": [np.array([[1, -1, 3, 4]]), []]}, "is not within 8 x 10 pixels"),
        ({"boxes": [np.array([[1, 2, np.nan, 4]]), []]}, "nan high, 4.0 wide. is not within"),
        ({"boxes": [np.array([[1, 2, 0, 4]]), []]}, "0 high, 4 wide"),
        ({"boxes": [np.zeros((2, 4)), []]}, "image 1 has 1 labels and 2 boxes"),
        ({"boxes": [[]]}, "2 images, 2 lists of labels, 1 of boxes and 0 of what is"),
        ({"unlearned": [[("c", [1, 2, 3, 4], True)], []]}, "a crowd of 'c'; choose from: a, b"),
        ({"labels": [["c"], []]}, "image 1 has the label 'c'"),
        ({"labels": [[], []], "boxes": [[], []]}, "has no object"),
        ({"images": np.zeros((2, 8, 10))}, "has float64"),
    ],
)
def test_a_source_that_is_not_as_agreed(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(BoxedData, "of_config", lambda data: given(**fields))
    with pytest.raises(UserError, match=words):
        BoxedData.load({"name": "given"})
