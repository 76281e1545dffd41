"""A run learns classes, mean and deviation of its training images and keeps them; what does not fit
them is refused.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from attnlab.data.images.annotated import HeldOut, ImageData, Labelled, fingerprint
from attnlab.data.learned import classes_of, moments
from tests.refusals import check_refused

IMAGES = np.random.default_rng(0).integers(0, 256, (12, 2, 3, 2)).astype(np.uint8)
IMAGES[..., 1] = 7


@pytest.mark.quick
def test_classes_mean_and_deviation_are_those_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    train, valid = Labelled(IMAGES, np.arange(12) % 11), Labelled(IMAGES[:3], [3, 10, 2])
    source = SimpleNamespace(images={"train": train, "valid": valid}.__getitem__)
    monkeypatch.setattr(ImageData, "of_config", lambda data: source)
    data = ImageData.load({"name": "given"})
    assert data.learned.classes == tuple(map(str, range(11)))  # 10 after 9
    assert (data.learned.mean, data.learned.deviation) == moments(IMAGES)
    np.testing.assert_array_equal(data.labels("valid"), [3, 10, 2])
    batch = data.examples["valid"].batch(np.array([2, -1]), 1)
    assert batch["label"].tolist() == [3, 0] and not batch["image"][1].any()
    assert data.about("train") == "12 images of 2 x 3 x 2; 11 classes of 1 to 2"


def test_the_fingerprint_tells_images_labels_and_shapes_apart() -> None:
    names = ["a"] * 12
    one, same = (fingerprint(IMAGES, names) for _ in range(2))
    others = (
        fingerprint(255 - IMAGES, names),
        fingerprint(IMAGES, ["b", *names[1:]]),
        fingerprint(IMAGES.reshape(12, 3, 2, 2), names),
    )
    assert one == same and len({one, *others}) == 4


def test_no_label_at_all_is_nothing_to_tell_apart() -> None:
    words = "config.data: the training split has no label; there is nothing to tell apart"
    check_refused(words, classes_of, [])


def test_a_share_that_is_none() -> None:
    for fields, words in (
        ({"held_out": 1.0}, "config.data.held_out=1.0 must be above 0 and below 1"),
        ({"seed": -1}, "config.data.seed=-1 must be at least 0"),
        ({"examples": -1}, "config.data.examples=-1 must be at least 0"),
        ({"held_out": 0.1}, "of 3 training images, 0 would be for validation"),
    ):
        check_refused(words, lambda fields=fields: HeldOut(**fields).rows("train", 3))


@pytest.mark.quick
def test_few_training_images_are_part_of_more_and_validation_stays() -> None:
    given = range(40)
    all_of_them, many, few = (
        HeldOut(0.25, examples=count).part("train", given, False) for count in (0, 20, 5)
    )
    assert [len(one) for one in (all_of_them, many, few)] == [30, 20, 5]
    assert {*few} < {*many} < {*all_of_them} and many == sorted(many)
    held = [HeldOut(0.25, examples=count).part("valid", given, False) for count in (0, 5)]
    assert held[0] == held[1] and not {*held[0]} & {*all_of_them}
    assert HeldOut(0.25, seed=1, examples=5).part("train", given, False) != few
    assert len(HeldOut(0.25, examples=5).part("train", given, True)) == 5
    assert len(HeldOut(0.25, examples=5).part("test", given, True)) == 40
    words = "config.data.examples=31: there are 30 to train on"
    check_refused(words, HeldOut(0.25, examples=31).part, "train", given, False)
