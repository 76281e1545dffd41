"""Boxes: how far they overlap, which answer belongs to which object, and average precision.

A box is (row, column, height, width): its middle and its sides, as shares of the image.

    IoU    = |A and B| / |A or B|
    GIoU   = IoU - (|hull| - |A or B|) / |hull|               hull: the least box around both
    match  = argmin over assignments of sum_k cost_{k, a(k)}
    AP     = mean over recalls r = 0, 0.01 ... 1 of the largest precision at a recall of at least r

Source: H. Rezatofighi et al., "Generalized Intersection over Union", CVPR 2019 (GIoU); H. W. Kuhn,
"The Hungarian Method for the Assignment Problem", 1955 (match; `optax.assignment`, which is a
program of JAX, so it runs inside of a step on any number of devices); T.-Y. Lin et al., "Microsoft
COCO", ECCV 2014, with the rules of its evaluation code (AP: mean over classes that have objects,
"AP" over thresholds 0.5, 0.55 ... 0.95 of IoU, "AP50" at 0.5).

Axis letters: B batch, N answers, M objects, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from attnlab.layers.precision import widened

THRESHOLDS = np.arange(10) * 0.05 + 0.5
RECALLS = np.linspace(0, 1, 101)


class Answers(NamedTuple):
    """What was found in one image: N boxes [N,4], class [N] from 0 and score [N] of each."""

    boxes: np.ndarray
    classes: np.ndarray
    scores: np.ndarray


class Truth(NamedTuple):
    """The objects of one image: M boxes [M,4] and class [M] of each."""

    boxes: np.ndarray
    classes: np.ndarray


def overlaps(one: jax.Array, other: jax.Array) -> tuple[jax.Array, jax.Array]:
    """IoU and GIoU of boxes [...,4], broadcast: [...] each; 0 and -1 of two that have no area."""
    one, other = widened(one), widened(other)
    (low, high), (least, most) = _corners(one), _corners(other)
    inside = _area(jnp.maximum(low, least), jnp.minimum(high, most))
    either = _area(low, high) + _area(least, most) - inside
    hull = _area(jnp.minimum(low, least), jnp.maximum(high, most))
    iou = inside / jnp.maximum(either, 1e-12)
    return iou, iou - 1 + either / jnp.maximum(hull, 1e-12)


def matched(cost: jax.Array, real: jax.Array) -> jax.Array:
    """The answer of each object, so that the sum of costs is least: cost [M,N], M <= N, real [M]
    bool, to [M] int32; each answer at most once. What is not real gets answers that are left over.
    """
    cost = jnp.where(real[:, None], jnp.nan_to_num(cost), 0.0)
    rows, columns = optax.assignment.hungarian_algorithm(jax.lax.stop_gradient(cost))
    return jnp.zeros(len(cost), jnp.int32).at[rows].set(columns.astype(jnp.int32))


def average_precisions(
    found: Sequence[Answers], truth: Sequence[Truth], classes: int, thresholds: np.ndarray
) -> np.ndarray:
    """AP of every class at every threshold of IoU, [C,thresholds]; nan for a class without objects.

    Answers of a class are taken by falling score, over all images. One is right if it overlaps an
    object of its class, in its image, by at least the threshold, and no better answer has taken
    that object; of several such objects it takes the one it overlaps most.
    """
    result = np.full((classes, len(thresholds)), np.nan)
    for number in range(classes):
        right, scores, total = [], [], 0
        for answers, objects in zip(found, truth, strict=True):
            mine = answers.classes == number
            order = np.argsort(-answers.scores[mine], kind="stable")
            wanted = objects.boxes[objects.classes == number]
            right.append(_right(answers.boxes[mine][order], wanted, thresholds))
            scores.append(answers.scores[mine][order])
            total += len(wanted)
        if total:
            order = np.argsort(-np.concatenate(scores), kind="stable")
            hits = np.concatenate(right)[order]
            result[number] = [_under_curve(one, total) for one in hits.T]
    return result


def _right(boxes: np.ndarray, wanted: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Which answers of an image [N,4], best first, are right: bool [N,thresholds]."""
    right = np.zeros((len(boxes), len(thresholds)), bool)
    if not len(wanted) or not len(boxes):
        return right
    iou = _iou(boxes[:, None], wanted[None])
    for at, threshold in enumerate(thresholds):
        free = np.ones(len(wanted), bool)
        for row, one in enumerate(iou):
            best = int(np.argmax(np.where(free, one, -1.0)))
            if free[best] and one[best] >= threshold - 1e-9:
                right[row, at], free[best] = True, False
    return right


def _under_curve(right: np.ndarray, total: int) -> float:
    """The mean over `RECALLS` of the largest precision at that recall or a higher one."""
    hits = np.cumsum(right)
    precision, recall = hits / np.arange(1, len(hits) + 1), hits / total
    largest = np.maximum.accumulate(precision[::-1])[::-1]
    at = np.searchsorted(recall, RECALLS - 1e-9, side="left")
    return float(np.append(largest, 0.0)[at].mean())


def _iou(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """IoU of boxes [...,4], in float64."""
    sides = [(b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2) for b in (one, other)]
    low, high = np.maximum(sides[0][0], sides[1][0]), np.minimum(sides[0][1], sides[1][1])
    inside = np.prod(np.maximum(high - low, 0.0), axis=-1)
    areas = [np.prod(b[..., 2:], axis=-1) for b in (one, other)]
    overlap: np.ndarray = inside / np.maximum(areas[0] + areas[1] - inside, 1e-12)
    return overlap


def _corners(boxes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first and the last corner, [...,2] each."""
    middle, half = boxes[..., :2], boxes[..., 2:] / 2
    return middle - half, middle + half


def _area(low: jax.Array, high: jax.Array) -> jax.Array:
    """Of the box between two corners; 0 where there is none."""
    sides = jnp.maximum(high - low, 0.0)
    return sides[..., 0] * sides[..., 1]
