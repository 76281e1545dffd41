"""Boxes: how far they overlap, which answer belongs to which object, and average precision.

A box is (row, column, height, width): its middle and its sides, as shares of the image.

    IoU    = |A and B| / |A or B|
    GIoU   = IoU - (|hull| - |A or B|) / |hull|               hull: the least box around both
    match  = argmin over assignments of sum_k cost_{k, a(k)}
    AP     = mean over recalls r = 0, 0.01 ... 1 of the largest precision at a recall of at least r
    IoU of a crowd region = |A and B| / |A|                   A: the answer

Source: H. Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019 (GIoU); H. W. Kuhn,
"The Hungarian Method for the Assignment Problem", 1955 (match; `optax.assignment`, which is a
program of JAX, so it runs inside of a step on any number of devices); T.-Y. Lin et al., "Microsoft
COCO", ECCV 2014, with the rules of its evaluation code, `pycocotools` 2.0.11, for all areas and at
most 100 answers of a class in an image (AP: mean over classes that have objects, "AP" over thresholds
0.5, 0.55 ... 0.95 of IoU, "AP50" at 0.5). `tests/tasks/golden_boxes.py` compares the two. It takes
equal scores in the order of the images' ids, this in the order of the split.

Axis letters: B batch, N answers, M objects, C classes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attnlab.layers.dense import widened

THRESHOLDS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
_MOST = 100  # answers of a class that count in an image, the best


class Answers(NamedTuple):
    """What was found in one image: N boxes [N,4], class [N] from 0 and score [N] of each."""

    boxes: np.ndarray
    classes: np.ndarray
    scores: np.ndarray


class Truth(NamedTuple):
    """The objects of one image: M boxes [M,4], class [M] of each, and which are crowd regions [M]
    bool: more objects of the class than were told apart.
    """

    boxes: np.ndarray
    classes: np.ndarray
    crowd: np.ndarray


def overlaps(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns IoU and GIoU [...] of two arrays of boxes [...,4] (centre and size), which are
    broadcast; 0 and -1 for two boxes without area.
    """
    first, second = widened(first), widened(second)
    (low, high), (other_low, other_high) = _corners(first), _corners(second)
    inside = _area(jnp.maximum(low, other_low), jnp.minimum(high, other_high))
    union = _area(low, high) + _area(other_low, other_high) - inside
    hull = _area(jnp.minimum(low, other_low), jnp.maximum(high, other_high))
    iou = inside / jnp.maximum(union, 1e-12)
    return iou, iou - 1 + union / jnp.maximum(hull, 1e-12)


def matched(cost: jax.Array, real: jax.Array) -> jax.Array:
    """Returns the answer of each object so that the sum of costs is least: cost [M,N] of giving
    answer n to object m, M <= N, real [M] bool, to [M] int32; each answer at most once. What is not
    real gets answers that are left over.
    """
    cost = jnp.where(real[:, None], jnp.nan_to_num(cost), 0.0)
    rows, columns = optax.assignment.hungarian_algorithm(jax.lax.stop_gradient(cost))
    return jnp.zeros(len(cost), jnp.int32).at[rows].set(columns.astype(jnp.int32))


def average_precisions(
    answered: Sequence[Answers], truth: Sequence[Truth], classes: int, thresholds: np.ndarray
) -> np.ndarray:
    """Returns the average precision [C,thresholds] of each of `classes` classes at each threshold
    of IoU, from the answers (of each class the best 100 in an image) and the true objects of each
    image; nan for a class without objects.

    Answers of a class are taken by falling score, over all images. One is right if it overlaps an
    object of its class, in its image, by at least the threshold, and no better answer has taken
    that object; of several such objects it takes the one it overlaps most. One that takes no
    object, but overlaps a crowd region so, counts for nothing, as the region does.
    """
    result = np.full((classes, len(thresholds)), np.nan)
    for number in range(classes):
        outcomes, scores, total = [], [], 0
        for answers, objects in zip(answered, truth, strict=True):
            answer_mask, object_mask = answers.classes == number, objects.classes == number
            if not answer_mask.any() and not object_mask.any():
                continue
            crowd = objects.crowd[object_mask]
            total += int((~crowd).sum())
            best = np.argsort(-answers.scores[answer_mask], kind="stable")[:_MOST]
            scores.append(answers.scores[answer_mask][best])
            outcomes.append(
                _hits_and_ignored(
                    answers.boxes[answer_mask][best], objects.boxes[object_mask], crowd, thresholds
                )
            )
        if total:
            order = np.argsort(-np.concatenate(scores), kind="stable")
            hits, ignored = np.concatenate(outcomes)[order].transpose(1, 2, 0)
            result[number] = [_ap_of_class(*row, total) for row in zip(hits, ignored, strict=True)]
    return result


def _hits_and_ignored(
    boxes: np.ndarray, regions: np.ndarray, crowd: np.ndarray, thresholds: np.ndarray
) -> np.ndarray:
    """Decides for each answer of an image, best first, and each threshold whether it takes a free
    object (a hit), else whether it lies in a crowd region and is ignored: bool [N,2,thresholds].

    Args:
      boxes: [N,4], the answers.
      regions: [M,4], objects and crowd regions of the same class.
      crowd: [M] bool, which of these are crowd regions.
      thresholds: of IoU.
    """
    outcomes = np.zeros((len(boxes), 2, len(thresholds)), bool)
    if not len(regions):
        return outcomes
    free, levels = np.ones((len(thresholds), len(regions)), bool), np.arange(len(thresholds))
    for row, iou in enumerate(_iou(boxes[:, None], regions[None], crowd)):
        reached = np.where(iou >= np.minimum(thresholds, 1 - 1e-10)[:, None], iou, -1.0)
        objects = np.where(free & ~crowd, reached, -1.0)
        best = len(regions) - 1 - objects[:, ::-1].argmax(axis=1)  # of equal ones the last
        outcomes[row, 0] = objects[levels, best] >= 0
        outcomes[row, 1] = ~outcomes[row, 0] & (reached[:, crowd] >= 0).any(axis=1)
        free[levels, best] &= ~outcomes[row, 0]
    return outcomes


def _ap_of_class(is_hit: np.ndarray, is_ignored: np.ndarray, total: int) -> float:
    """Computes average precision from flags of answers by falling score: the mean over `RECALLS` of
    the largest precision at that recall or higher. `is_ignored` answers count for nothing; `total`
    is the number of objects.
    """
    hits, misses = np.cumsum(is_hit), np.cumsum(~is_hit & ~is_ignored)
    precision, recall = hits / (hits + misses + np.spacing(1)), hits / total
    largest = np.maximum.accumulate(precision[::-1])[::-1]
    positions = np.searchsorted(recall, RECALLS, side="left")
    return float(np.append(largest, 0.0)[positions].mean())


def _iou(boxes: np.ndarray, regions: np.ndarray, crowd: np.ndarray) -> np.ndarray:
    """Computes IoU of boxes and regions [...,4], broadcast, in float64; for a region that is
    `crowd`, the share of the box inside it.
    """
    sides = [(b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2) for b in (boxes, regions)]
    low, high = np.maximum(sides[0][0], sides[1][0]), np.minimum(sides[0][1], sides[1][1])
    inside = np.prod(np.maximum(high - low, 0.0), axis=-1)
    areas = [np.prod(b[..., 2:], axis=-1) for b in (boxes, regions)]
    union = areas[0] + np.where(crowd, 0.0, areas[1] - inside)
    return np.divide(inside, union, out=np.zeros(inside.shape), where=inside > 0)


def _corners(boxes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first and the last corner, [...,2] each."""
    middle, half = boxes[..., :2], boxes[..., 2:] / 2
    return middle - half, middle + half


def _area(low: jax.Array, high: jax.Array) -> jax.Array:
    """Of the box between two corners; 0 where there is none."""
    sides = jnp.maximum(high - low, 0.0)
    return sides[..., 0] * sides[..., 1]
