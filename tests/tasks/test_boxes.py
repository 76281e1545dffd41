"""Overlaps of boxes and average precision are those by hand and by definition; matching costs as
little as scipy's.
"""

from typing import Any

import jax
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from attnlab.tasks.boxes import THRESHOLDS, Answers, Truth, average_precisions, matched, overlaps
from tests.tasks import golden_boxes


def by_corners(top: float, left: float, bottom: float, right: float) -> list[float]:
    return [(top + bottom) / 2, (left + right) / 2, bottom - top, right - left]


def test_overlaps_by_hand() -> None:
    one = np.array([by_corners(0, 0, 2, 2)] * 4)
    other = np.array(
        [
            by_corners(0, 0, 2, 2),
            by_corners(1, 1, 3, 3),  # 1 of 7; hull 9
            by_corners(0, 3, 2, 5),  # apart: 0 of 8; hull 10
            by_corners(0.5, 0.5, 1.5, 1.5),  # inside
        ]
    )
    iou, giou = overlaps(one, other)
    np.testing.assert_allclose(iou, [1, 1 / 7, 0, 1 / 4], rtol=1e-6)
    np.testing.assert_allclose(giou, [1, 1 / 7 - 2 / 9, -2 / 10, 1 / 4], rtol=1e-6)
    nothing = np.zeros((1, 4))
    assert [float(actual[0]) for actual in overlaps(nothing, nothing)] == [0, -1]
    slope = jax.jit(jax.grad(lambda box: overlaps(box, one)[1].sum()))
    assert np.isfinite(slope(nothing)).all()


@pytest.mark.quick
def test_a_match_costs_as_little_as_scipys() -> None:
    """Also where some objects are not real, whatever their costs are, or if they are no numbers."""
    rng = np.random.default_rng(0)
    cost = rng.normal(size=(60, 4, 7)).astype(np.float32)
    real = np.arange(4) < rng.integers(0, 5, size=(60, 1))
    cost[::2][~real[::2]] = np.nan
    actual = np.asarray(jax.jit(jax.vmap(matched))(cost, real))
    for one, mine, there in zip(cost, actual, real, strict=True):
        rows, columns = linear_sum_assignment(one[there])
        assert one[there][rows, mine[there]].sum() == pytest.approx(one[there][rows, columns].sum())
        assert len({*mine}) == 4 and (mine[there] == columns).all()


def answers(*actual: tuple[list[float], int, float]) -> Answers:
    boxes, classes, scores = zip(*actual, strict=True) if actual else ((), (), ())
    return Answers(np.array(boxes).reshape(-1, 4), np.array(classes, int), np.array(scores, float))


def objects(*boxes: list[float]) -> Truth:
    return Truth(np.array(boxes), np.zeros(len(boxes), int), np.zeros(len(boxes), bool))


A, B, FAR = by_corners(0, 0, 10, 10), by_corners(20, 20, 30, 30), by_corners(50, 50, 60, 60)
SHIFTED = by_corners(0, 0, 10, 8)  # IoU 0.8 with A


def test_average_precision_by_hand() -> None:
    """Two objects: right, wrong, right: precision 1 up to a recall of 1/2 (51 of 101 points), then
    2/3.
    """
    truth = [objects(A, B)]
    actual = [answers((A, 0, 0.9), (FAR, 0, 0.8), (B, 0, 0.7))]
    ap = average_precisions(actual, truth, 2, np.array([0.5]))
    assert ap[0, 0] == pytest.approx((51 + 50 * 2 / 3) / 101) and np.isnan(ap[1, 0])
    # Another class finds nothing of this one; one that is missed ends the curve.
    only = [answers((A, 0, 0.9), (B, 1, 0.95))]
    assert average_precisions(only, truth, 2, np.array([0.5]))[0, 0] == pytest.approx(51 / 101)
    assert average_precisions([answers()], truth, 1, np.array([0.5]))[0, 0] == 0.0
    # A recall of 7 / 20 is a little less than the 36th of the 101 numbers.
    many = [by_corners(20 * k, 0, 20 * k + 10, 10) for k in range(21)]
    order = [*range(7), 20, *range(7, 20)]  # the last box is no object
    actual = [answers(*((many[k], 0, 1 - at / 100) for at, k in enumerate(order)))]
    ap = average_precisions(actual, [objects(*many[:20])], 1, np.array([0.5]))
    assert ap[0, 0] == pytest.approx((35 + 66 * 20 / 21) / 101)


def test_average_precision_is_that_of_pycocotools() -> None:
    """On 200 random sets with crowds, flags, equal scores and more answers than count."""
    expected = np.load(golden_boxes.FILE)["precisions"]
    for number, wanted in enumerate(expected):
        images, *both = golden_boxes.drawn(number)
        actual, truth = [], []
        for image in range(1, images + 1):
            mine, theirs = ([one for one in part if one["image_id"] == image] for part in both)
            crowd = np.array([one["iscrowd"] == 1 for one in mine], bool)
            truth.append(Truth(*in_rows(mine), crowd))
            actual.append(Answers(*in_rows(theirs), np.array([one["score"] for one in theirs])))
        ap = average_precisions(actual, truth, golden_boxes.CLASSES, THRESHOLDS)
        np.testing.assert_allclose(ap, wanted, rtol=1e-14, err_msg=f"set {number}")


def in_rows(listed: list[dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Boxes by their middles [N,4], and classes [N] from 0."""
    boxes = np.array([one["bbox"] for one in listed], float).reshape(-1, 4)[:, [1, 0, 3, 2]]
    boxes[:, :2] += boxes[:, 2:] / 2
    return boxes, np.array([one["category_id"] - 1 for one in listed], int)
