"""Where a system looks when it answers a question about an image, beside where the answer is to be
seen.

    localisation  = mean over questions of the share of the attention that lies in the boxes
    chance        = mean over questions of the share of the image that is in the boxes

A place of the feature map stands for the pixels of its part of the image, each with the same share of
its weight; so the same weight everywhere gives the chance. The look is that of the question as a
whole: the rows of hops, or of a Transformer the row of what reads out; mean over heads.

Axis letters: B questions, H heads, L places of the feature map (h w).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from attnlab.data.images.questions import Question
from attnlab.systems.protocol import AttentionMap

LOCALISATION, CHANCE = "localisation", "chance"


def of_questions(maps: Mapping[str, AttentionMap]) -> dict[str, jax.Array]:
    """Of the maps [B,H,Tq,L] whose keys are an image's and whose queries are not, the look of the
    question as a whole, [B,L].
    """
    seen = {name: one for name, one in maps.items() if one.key == "image" != one.query}
    return {
        name: one.weights.mean(axis=(1, 2))
        if one.query == "hops"
        else one.weights.mean(axis=1)[:, 0]
        for name, one in seen.items()
    }


def covered(question: Question, shape: Sequence[int]) -> np.ndarray:
    """1 at the pixels in the boxes of a question, else 0, [H,W]."""
    mask = np.zeros(shape[:2])
    for top, left, height, width in question.boxes:
        mask[top : top + height, left : left + width] = 1
    return mask


def inside(question: Question, grid: tuple[int, int], shape: Sequence[int]) -> np.ndarray:
    """The share of the pixels of each place that are in the boxes of a question, [L].

    Args:
      question: with boxes.
      grid: h and w.
      shape: H and W of the image, and its channels.
    """
    mask = covered(question, shape)
    row, column = (np.arange(of) * n // of for n, of in zip(grid, shape, strict=False))
    place = (row[:, None] * grid[1] + column).ravel()
    return np.bincount(place, mask.ravel(), grid[0] * grid[1]) / np.bincount(
        place, minlength=grid[0] * grid[1]
    )


def localised(
    looks: Mapping[str, np.ndarray],
    questions: Sequence[Question],
    grid: tuple[int, int],
    shape: Sequence[int],
) -> dict[str, dict[str, float]]:
    """`localisation` of every map, and `chance`, by kind of question; {} if no question has a box.

    Args:
      looks: by the name of the map, [N,L].
      questions: N.
      grid, shape: see `inside`.
    """
    rows: dict[str, dict[str, list[float]]] = {name: {} for name in (*looks, CHANCE)}
    for number, question in enumerate(questions):
        if not question.boxes:
            continue
        parts = inside(question, grid, shape)
        for name, weights in looks.items():
            rows[name].setdefault(question.kind, []).append(float(weights[number] @ parts))
        share = float(covered(question, shape).mean())
        rows[CHANCE].setdefault(question.kind, []).append(share)
    if not rows[CHANCE]:
        return {}
    return {
        name: {kind: float(np.mean(found)) for kind, found in sorted(kinds.items())}
        for name, kinds in rows.items()
    }
