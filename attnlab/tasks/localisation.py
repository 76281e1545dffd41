"""Where a system looks when it writes a word about an image, beside where that is which the word is
about; or when it answers a question about one, beside where the answer is to be seen.

    localisation  = mean over words of the share of the word's attention that lies on its object,
                    or over questions of the share of the attention that lies in their boxes
    pointing      = share of words whose most looked-at place lies on its object, in part at least

They are of the words that name an object ("red", "star"). A place of the feature map stands for the
pixels of its part of the image, [H/h, W/w], each with the same share of its weight. The chance of
localisation is the share of the image that the object, or the boxes, have, which is what the same
weight everywhere gives (exactly so where the grid divides the image); that of pointing the share of
places that lie on it, in part at least. The look of a question is that of it as a whole: the rows of
hops, or of a Transformer the row of what reads out; mean over heads.

Axis letters: N captions or questions, T words, L places of the feature map (h w), H and W height and
width of the image; in maps B questions, H heads.
"""

from collections.abc import Iterable, Mapping, Sequence

import jax
import numpy as np

from attnlab.data.images.annotated import Shown
from attnlab.data.images.texts import Question
from attnlab.systems.protocol import AttentionMap

SCORES = ("localisation", "localisation_chance", "pointing", "pointing_chance")
LOCALISATION, CHANCE = "localisation", "chance"

Named = Sequence[tuple[int, int]]
"""Of a caption, the positions of the words that name an object, each with the object's number."""


def named(captions: Sequence[str], shown: Shown) -> list[Named]:
    """Returns for each caption the pairs (position, object number) of its words that name an
    object; `shown` says for each word which object it is about, and has the set of object names.
    """
    return [
        [
            (position, about)
            for position, (word, about) in enumerate(zip(text.split(), abouts, strict=True))
            if about >= 0 and word in shown.named
        ]
        for text, abouts in zip(captions, shown.words, strict=True)
    ]


def sums(
    weights: Iterable[tuple[int, np.ndarray]],
    words: Sequence[Named],
    objects: np.ndarray,
    grid: tuple[int, int],
) -> np.ndarray:
    """Returns for each of N captions [N,5] sums over its words that name an object: attention
    inside it, its share of the pixels, 1 if the most attended place touches it, the share of places
    that touch it, and the number of these words.

    Args:
      weights: number of a caption, and of its T words the weights [T,L]; every caption once.
      words: of each caption.
      objects: uint8 [N,H,W], k + 1 at the pixels of object k.
      grid: h and w.
    """
    totals = np.zeros((len(words), len(SCORES) + 1))
    for number, looks in weights:
        for position, about in words[number]:
            pixels = objects[number] == about + 1
            inside = shares(pixels, grid)
            hit = inside > 0
            totals[number] += (
                looks[position] @ inside,
                pixels.mean(),
                hit[looks[position].argmax()],
                hit.mean(),
                1,
            )
    return totals


def shares(pixels: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Computes the share of the pixels of each place that are set, [L], from pixels [H,W] of 0 and
    1 and the grid (h, w) of places.
    """
    rows, columns = (np.arange(n) * cells // n for n, cells in zip(pixels.shape, grid, strict=True))
    place = (rows[:, None] * grid[1] + columns).ravel()  # of each pixel
    size = np.bincount(place, minlength=grid[0] * grid[1])
    return np.bincount(place, pixels.ravel(), len(size)) / np.maximum(size, 1)


def of_questions(maps: Mapping[str, AttentionMap]) -> dict[str, jax.Array]:
    """Returns by name, for each map [B,H,Tq,L] whose keys are the image and whose queries are not,
    the attention [B,L] of the whole question: the mean over heads and hops, or over heads in the
    first row.
    """
    image_maps = {name: look for name, look in maps.items() if look.columns == "image" != look.rows}
    return {
        name: look.weights.mean(axis=(1, 2))
        if look.rows == "hops"
        else look.weights.mean(axis=1)[:, 0]
        for name, look in image_maps.items()
    }


def covered(question: Question, shape: Sequence[int]) -> np.ndarray:
    """Returns 1 at the pixels in the boxes of a question, else 0, [H,W], for images of this shape."""
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
    """Returns for every map, and under `CHANCE`, by kind of question the mean share of attention
    (for chance, of pixels) inside a question's boxes; {} if no question has a box; `looks` are
    weights [N,L] by name.

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
