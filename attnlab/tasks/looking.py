"""Where a system looks when it answers a question about an image, beside where the answer is to be
seen.

    localisation  = mean over questions of the share of the attention that lies in the boxes
    chance        = mean over questions of the share of the image that is in the boxes

A place of the feature map stands for the pixels of its part of the image, each with the same share of
its weight; so the same weight everywhere gives the chance, exactly so where the grid divides the
image. The look is that of the question as a
whole: the rows of hops, or of a Transformer the row of what reads out; mean over heads.

Axis letters: B questions, H heads, L places of the feature map (h w).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from attnlab.data.images.questions import Question
from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.localisation import shares

LOCALISATION, CHANCE = "localisation", "chance"


def of_questions(maps: Mapping[str, AttentionMap]) -> dict[str, jax.Array]:
    """Of the maps [B,H,Tq,L] whose keys are an image's and whose queries are not, the look of the
    question as a whole, [B,L].
    """
    seen = {name: look for name, look in maps.items() if look.columns == "image" != look.rows}
    return {
        name: look.weights.mean(axis=(1, 2))
        if look.rows == "hops"
        else look.weights.mean(axis=1)[:, 0]
        for name, look in seen.items()
    }


def covered(question: Question, shape: Sequence[int]) -> np.ndarray:
    """1 at the pixels in the boxes of a question, else 0, [H,W]."""
    mask = np.zeros(shape[:2])
    for top, left, height, width in question.boxes:
        mask[top : top + height, left : left + width] = 1
    return mask


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
      grid: h and w.
      shape: H and W of the image, and its channels.
    """
    rows: dict[str, dict[str, list[float]]] = {name: {} for name in (*looks, CHANCE)}
    for number, question in enumerate(questions):
        if not question.boxes:
            continue
        pixels = covered(question, shape)
        parts = shares(pixels, grid)
        for name, weights in looks.items():
            rows[name].setdefault(question.kind, []).append(float(weights[number] @ parts))
        rows[CHANCE].setdefault(question.kind, []).append(float(pixels.mean()))
    if not rows[CHANCE]:
        return {}
    return {
        name: {kind: float(np.mean(values)) for kind, values in sorted(kinds.items())}
        for name, kinds in rows.items()
    }
