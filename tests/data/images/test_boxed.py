"""Images with all of their objects as columns; sources not as agreed are in `test_dataset.py`."""

from types import SimpleNamespace

import numpy as np
import pytest

from attnlab.data.images.annotated import Boxed
from attnlab.data.images.boxed import BoxedData

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
