"""Detection has the loss of the best assignment, on any devices; its scores are those of its answers,
which are drawn over the image.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest
from scipy.optimize import linear_sum_assignment

from attnlab.tasks.boxes import Answers, overlaps
from attnlab.tasks.detection import Detection
from attnlab.tasks.maps import attention_maps
from attnlab.training.parallel import backend
from attnlab.training.settings import Parallel
from attnlab.training.step import first_state, make_step
from tests.refusals import check_refused
from tests.tasks.tiny import fixtures, image_files, loader

SMALL = [
    *("data.examples=24", "data.valid=9", "data.test=3", "data.side=20", "data.grid=2"),
    *("data.small=3", "data.large=3", "data.most=2", "data.jitter=1", "batch.size=8"),
    *("system.backbone.widths=4,6", "system.backbone.layers=1"),
    *("system.width=8", "system.hidden=8", "system.queries=3"),
    *(f"system.{slot}_attention.heads=2" for slot in ("encoder", "decoder", "cross")),
]


load = loader("detection.py:detr", SMALL)
task, params = fixtures(load, 0.1)


def expected(task: Detection, logits: np.ndarray, boxes: np.ndarray, batch: Any) -> float:
    """Equations 1 and 2 of the paper over layers, images and objects, weights 1, 5, 2 and 0.1."""
    total = 0.0
    for layer in range(len(logits)):
        for row in np.flatnonzero(batch["real"]):
            chances = np.exp(logits[layer, row])
            chances /= chances.sum(axis=-1, keepdims=True)
            of = batch["labels"][row][batch["labels"][row] > 0] - 1
            expected = batch["boxes"][row][: len(of)]
            giou = np.asarray(overlaps(boxes[layer, row][None], expected[:, None])[1], np.float64)
            apart = np.abs(boxes[layer, row][None] - expected[:, None]).sum(axis=-1)
            objects, chosen = linear_sum_assignment(-chances[:, of].T + 5 * apart - 2 * giou)
            for query, p in enumerate(chances):
                mine = objects[chosen == query]
                total -= np.log(p[of[mine[0]]]) if len(mine) else 0.1 * np.log(p[-1])
            total += (5 * apart + 2 * (1 - giou))[objects, chosen].sum()
    return total


def test_the_loss_is_that_of_the_best_assignment(task: Detection, params: Any) -> None:
    batch = task.of_split("valid").batch(np.array([0, 1, 2, 3, 4, -1]), 1)
    run = jax.jit(lambda params: (task.apply(params, batch), task.sums(params, batch)))
    (logits, boxes), sums = run(params)
    logits, boxes = (np.asarray(one, np.float64) for one in (logits, boxes))
    assert float(sums["loss"]) == pytest.approx(expected(task, logits, boxes, batch), rel=1e-4)
    assert int(sums["rows"]) == 5 and int(sums["objects"]) == (batch["labels"] > 0).sum()
    assert float(task.weight(batch)) == (batch["labels"] > 0).sum()


def test_evaluation_reads_every_image_once(task: Detection, params: Any) -> None:
    """A system that answers with the truth has an AP of 1; rows of padding are no images."""
    actual = task.evaluate(params, "valid")
    assert actual.keys() == {"loss", "ap", "ap50", "iou"} and actual["ap"] <= actual["ap50"]
    labels, boxes = task.data.labels("valid"), task.data.boxes("valid")
    real, scores = np.ones(len(labels)), (labels > 0) * 0.9
    truth = {"boxes": boxes, "classes": labels - 1, "scores": scores, "real": real}
    padded = {name: np.concatenate([one, 0 * one[:1]]) for name, one in truth.items()}
    halves = [{key: x[rows] for key, x in padded.items()} for rows in (slice(7), slice(7, None))]
    sums = [{"loss": 1.0, "iou": 1.0, "objects": 2.0, "found": half} for half in halves]
    perfect = task.averaged(task.totals(sums, "valid"))
    assert (perfect["ap"], perfect["ap50"], perfect["loss"]) == (1.0, 1.0, 0.5)
    scores, lines = task.score(params, "valid")
    assert len(lines) == 9 and set(scores["by_class"]) <= set(task.data.learned.classes)
    mean = np.mean([one["ap50"] for one in scores["by_class"].values()])
    assert mean == pytest.approx(actual["ap50"])


@pytest.mark.full
@pytest.mark.parametrize("name", ["pmap", "mesh"])
def test_several_devices_take_the_step_of_one(task: Detection, params: Any, name: str) -> None:
    """The assignment is a part of the program, on whatever device an image is."""
    sgd = optax.sgd(0.01)
    state, batch = first_state(params, sgd, 0.0), task.batches(4)(0)
    step = make_step(task.loss, task.weight, sgd)
    alone, metrics = jax.jit(step)(state, batch)
    on = backend(Parallel(backend=name, devices=4))
    placed, fed = on.place(jax.device_get(state)), on.feed(batch)
    after, told = on.compile(step, placed, fed)(placed, fed)
    assert float(on.fetch(told)["loss"]) == pytest.approx(float(metrics["loss"]), rel=1e-4)
    moved, expected = on.fetch(after).params["queries"], alone.params["queries"]
    np.testing.assert_allclose(moved, expected, rtol=1e-3, atol=1e-6)


def test_files_are_answered_and_maps_drawn(task: Detection, params: Any, tmp_path: Path) -> None:
    (name,) = image_files(tmp_path, task.of_split("valid").batch(np.arange(1), 1)["image"])
    ((best,),) = task.respond(params, [name])
    actual = task.detections(params, task.of_split("valid"))[0]
    sure = actual.scores >= 0.5
    assert best.text == task.score(params, "valid")[1][0]
    assert len(best.text.split(", ")) == sure.sum() if sure.any() else best.text == "nothing"
    (first, _) = task.map_examples("valid", 2)
    cross = attention_maps(task, params, first)["decoder_0/cross_attention"]
    assert first.shown() == "valid image 1" and len(cross.rows) == 3
    assert len(cross.columns) == 25


def test_boxes_are_drawn(task: Detection, params: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three boxes in the middle of an image, as shares of its sides, two have a score of 0.5."""
    height, width = task.data.learned.shape[:2]
    boxes = np.array([[0.5, 0.5, 4 / height, 2 / width]] * 2 + [[0.5, 0.5, 1.0, 1.0]], np.float32)
    actual = Answers(boxes, np.array([0, 1, 0]), np.array([0.6, 0.9, 0.4]))
    monkeypatch.setattr(task, "detections", lambda params, asked: [actual] * len(asked))
    image = task.map_examples("valid", 1)[0].image
    drawn = task.answer_maps(params, image)["answer"]
    assert drawn.rows == [task.data.learned.classes[at] for at in (1, 0)]
    expected = np.zeros((height, width), np.float32)
    expected[height // 2 - 2 : height // 2 + 2, width // 2 - 1 : width // 2 + 1] = 1.0
    np.testing.assert_allclose(drawn.weights, [0.9 * expected, 0.6 * expected], rtol=1e-6)
    none = actual._replace(scores=np.zeros(3))
    monkeypatch.setattr(task, "detections", lambda params, asked: [none])
    assert task.answer_maps(params, image) == {}


@pytest.mark.full
def test_fewer_queries_than_objects_are_refused() -> None:
    check_refused("queries=1: an image of the train split has 2 objects", load, "system.queries=1")
