"""Segmentation is scored as a loop over pixels does; open pixels count for nothing, and masks change
with their images.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from attnlab.tasks.maps import overlays
from attnlab.tasks.segmentation import Segmentation, mean_iou
from tests.tasks.tiny import check_items, fixtures, image_files, loader

SMALL = [
    *("data.examples=24", "data.valid=9", "data.test=3", "data.side=20", "data.grid=2"),
    *("data.small=3", "data.large=3", "data.most=2", "data.jitter=1", "batch.size=8"),
    *("system.backbone=cnn", "system.backbone.widths=4,6", "system.width=4"),
]


load = loader("segmentation.py:segmenter", SMALL)
task, params = fixtures(load, 0.2)


def test_mean_iou_by_hand() -> None:
    """Class 2 is answered but not there: 0. Class 3 is neither: left out."""
    confusion = np.array([[6, 1, 1, 0], [2, 4, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    assert mean_iou(confusion) == pytest.approx((6 / 10 + 4 / 7 + 0) / 3)
    assert mean_iou(np.zeros((3, 3))) == 0.0


@pytest.mark.quick
def test_scores_are_those_of_a_loop_over_pixels(task: Segmentation, params: Any) -> None:
    """Of whole splits, whose batches have rows of padding."""
    learned, split = task.data.learned, task.of_split("valid").batch(np.arange(9), 1)
    assert learned.classes == ("ground", "circle", "square", "triangle", "star")
    images = (split["image"] / 255 - np.array(learned.mean)) / np.array(learned.deviation)
    call = jax.jit(lambda x: task.system.apply({"params": params}, x))
    logits = np.asarray(call(images.astype(np.float32)), np.float64)
    truth, given = split["mask"].astype(int) - 1, logits.argmax(axis=-1)
    picked = np.take_along_axis(logits, truth[..., None], -1)[..., 0]
    nats = np.log(np.exp(logits).sum(-1)) - picked
    actual = task.evaluate(params, "valid")
    assert actual["loss"] == pytest.approx(nats.mean(), rel=1e-5)
    assert actual["accuracy"] == pytest.approx(np.mean(truth == given))
    parts = []
    for k in range(5):
        hits, either = ((truth == k) & (given == k)).sum(), ((truth == k) | (given == k)).sum()
        parts += [hits / either] if either else []
    assert actual["mean_iou"] == pytest.approx(np.mean(parts))
    scores, lines = task.score(params, "valid")
    count = np.sum((truth == 0) & (given == 2))
    assert scores["confusion"]["ground"]["square"] == count and len(lines) == 9
    assert float(lines[3].split("\t")[1]) == pytest.approx(np.mean(truth[3] == given[3]), abs=1e-4)
    assert task.counts("valid") == {"pixels": 9 * 400}
    check_items(task, params, "valid", {"loss", "accuracy", "mean_iou"})
    np.testing.assert_array_equal(task.masks(params, task.of_split("valid")), given)


def test_pixels_that_are_left_open_count_for_nothing(task: Segmentation, params: Any) -> None:
    batch = {key: one.copy() for key, one in task.of_split("valid").batch(np.arange(4), 1).items()}
    batch["mask"][0, :10], batch["mask"][3] = 0, 0

    def run(params: Any, mask: jax.Array) -> Any:
        given = {**batch, "mask": mask}
        return task.sums(params, given), task.apply(params, given), task.weight(given)

    sums, logits, weight = jax.jit(run)(params, batch["mask"])
    wanted, given = batch["mask"].astype(int) - 1, np.asarray(logits).argmax(-1)
    real = wanted >= 0
    assert int(sums["pixels"]) == float(weight) == real.sum() == 1000
    assert int(sums["correct"]) == ((wanted == given) & real).sum()
    assert int(sums["rows"]) == 3 and int(sums["confusion"].sum()) == 1000
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, np.maximum(wanted, 0))
    assert float(sums["loss"]) == pytest.approx(float(expected[real].sum()), rel=1e-5)


def test_a_mask_is_changed_with_its_image(task: Segmentation, params: Any) -> None:
    """Channel 0 of images made of their own masks tells after the change which mask it was."""
    changing = load("augmentation.crop=4", "augmentation.flip=true")
    batch = task.of_split("train").batch(np.arange(8), 1)
    image = np.repeat(batch["mask"][..., None], 3, axis=-1)

    def watched(outputs: Any, given: Any, smoothing: Any) -> Any:
        return {"loss": jnp.zeros(()), "image": given["image"], "mask": given["mask"]}

    changing.summed = watched  # type: ignore[method-assign]
    _, given = jax.jit(changing.loss)(params, {**batch, "image": image}, jax.random.key(3))
    changed, mask = given["image"], given["mask"]
    np.testing.assert_array_equal(changed[..., 0], mask)
    assert (np.asarray(mask) != batch["mask"]).any() and (np.asarray(mask) == 0).any()


def test_files_are_answered(task: Segmentation, params: Any, tmp_path: Path) -> None:
    (name,) = image_files(tmp_path, task.of_split("valid").batch(np.arange(1), 1)["image"])
    mask = task.masks(params, task.examples_from_lines([name]))[0]
    ((best,),) = task.respond(params, [name])
    shares = dict(one.split() for one in best.text.split(", "))
    counts = {task.data.learned.classes[k]: np.mean(mask == k) for k in np.unique(mask)}
    assert shares.keys() == counts.keys()
    for label, part in shares.items():
        assert float(part) == pytest.approx(counts[label], abs=6e-4)
    (example,) = task.examples_from_text(params, [(name, None)])
    assert example.shown() == f"{name}  ->  {best.text}"
    look = overlays(task, params, example, {})[0]["answer"]
    assert list(look.rows) == list(shares) and task.system.looks
    for label, pixels in zip(look.rows, look.weights, strict=True):
        expected = mask == task.data.learned.classes.index(label)
        np.testing.assert_array_equal(pixels, expected.astype(np.float32))
