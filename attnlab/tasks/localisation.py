"""Where a system looks when it writes a word, beside where that is which the word is about.

    localisation  = mean over words of the share of the word's attention that lies on its object
    pointing      = share of words whose most looked-at place lies on its object, in part at least

They are of the words that name an object ("red", "star"). A place of the feature map stands for the
pixels of its part of the image, [H/h, W/w], each with the same share of its weight. The chance of
localisation is the share of the image that the object has, which is what the same weight everywhere
gives; that of pointing the share of places that lie on it, in part at least.

Axis letters: N captions, T words, L places of the feature map (h w), H and W height and width of the
image.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from attnlab.data.images.annotated import Shown

SCORES = ("localisation", "localisation_chance", "pointing", "pointing_chance")

Named = Sequence[tuple[int, int]]
"""Of a caption, the positions of the words that name an object, each with the object's number."""


def named(captions: Sequence[str], shown: Shown) -> list[Named]:
    """The words of each caption that name an object."""
    return [
        [
            (at, about)
            for at, (word, about) in enumerate(zip(text.split(), abouts, strict=True))
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
    """For each of N captions the sums over its words of `SCORES`, and the number of words, [N,5].

    Args:
      weights: number of a caption, and of its T words the weights [T,L]; every caption once.
      words: of each caption.
      objects: uint8 [N,H,W], k + 1 at the pixels of object k.
      grid: h and w.
    """
    totals = np.zeros((len(words), len(SCORES) + 1))
    for number, looks in weights:
        for at, about in words[number]:
            pixels = objects[number] == about + 1
            inside = shares(pixels, grid)
            hit = inside > 0
            totals[number] += (
                looks[at] @ inside,
                pixels.mean(),
                hit[looks[at].argmax()],
                hit.mean(),
                1,
            )
    return totals


def shares(pixels: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """The share of the pixels of each place that are set, [L]; pixels [H,W] of 0 and 1, grid h and w."""
    rows, columns = (np.arange(n) * of // n for n, of in zip(pixels.shape, grid, strict=True))
    place = (rows[:, None] * grid[1] + columns).ravel()  # of each pixel
    size = np.bincount(place, minlength=grid[0] * grid[1])
    return np.bincount(place, pixels.ravel(), len(size)) / np.maximum(size, 1)
