"""Localisation against a loop over pixels; attention that lies on the object, everywhere, and beside
it.
"""

from __future__ import annotations

import numpy as np
import pytest

from attnlab.data.images.annotated import Shown
from attnlab.tasks.localisation import SCORES, named, sums

CAPTIONS = ["a red star", "a blue circle and a red star"]
WORDS = [[0, 0, 0], [0, 0, 0, -1, 1, 1, 1]]
NAMED = frozenset({"red", "blue", "star", "circle"})


def shown() -> Shown:
    """Of 6 x 8 pixels: one object in 4 pixels; two objects, one in a corner of 3 pixels."""
    objects = np.zeros((2, 6, 8), np.uint8)
    objects[0, 1:3, 2:4] = 1
    objects[1, 5, :3], objects[1, :4, 4:] = 1, 2
    return Shown(WORDS, objects, NAMED)


def test_words_that_name_an_object() -> None:
    assert named(CAPTIONS, shown()) == [[(1, 0), (2, 0)], [(1, 0), (2, 0), (5, 1), (6, 1)]]


@pytest.mark.parametrize("grid", [(3, 4), (6, 8), (1, 1), (2, 3)])
def test_sums_are_those_of_a_loop_over_pixels(grid: tuple[int, int]) -> None:
    """Also where the places of a map do not divide the image."""
    rng, known = np.random.default_rng(0), shown()
    places = grid[0] * grid[1]
    weights = [rng.dirichlet(np.ones(places), size=9) for _ in CAPTIONS]
    words = named(CAPTIONS, known)
    found = sums(list(enumerate(weights))[::-1], words, known.objects, grid)
    of = {
        (row, column): (row * grid[0] // 6) * grid[1] + column * grid[1] // 8
        for row in range(6)
        for column in range(8)
    }
    size = [list(of.values()).count(place) for place in range(places)]
    for number, of_caption in enumerate(words):
        expected = np.zeros(5)
        for at, about in of_caption:
            pixels = [one for one in of if known.objects[number][one] == about + 1]
            on = {of[one] for one in pixels}
            mass = sum(weights[number][at][of[one]] / size[of[one]] for one in pixels)
            best = int(np.argmax(weights[number][at]))
            expected += [mass, len(pixels) / 48, best in on, len(on) / places, 1]
        np.testing.assert_allclose(found[number], expected, rtol=1e-12)


def test_uniform_attention_has_the_chance_and_attention_on_the_object_all() -> None:
    known = shown()
    words, grid = named(CAPTIONS, known), (6, 8)
    level = [np.full((9, 48), 1 / 48)] * 2
    totals = dict(zip(SCORES, sums(enumerate(level), words, known.objects, grid).T, strict=False))
    np.testing.assert_allclose(totals["localisation"], totals["localisation_chance"])
    on, off = (np.zeros((2, 9, 48)) for _ in range(2))
    for number, of_caption in enumerate(words):
        for at, about in of_caption:
            on[number, at, np.argmax(known.objects[number].ravel() == about + 1)] = 1
            off[number, at, np.argmax(known.objects[number].ravel() == 0)] = 1
    best, worst = (sums(enumerate(one), words, known.objects, grid) for one in (on, off))
    np.testing.assert_array_equal(best[:, [0, 2, 4]], [[2, 2, 2], [4, 4, 4]])
    np.testing.assert_array_equal(worst[:, [0, 2]], 0)
