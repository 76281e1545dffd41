"""Localisation against a loop over pixels; attention that lies on the object, everywhere, and beside
it; where the answer to a question is to be seen, by hand.
"""

import numpy as np
import pytest

from attnlab.data.images.annotated import Shown
from attnlab.data.images.texts import Question
from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.localisation import covered, localised, named, of_questions, shares, sums

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
    actual = sums(list(enumerate(weights))[::-1], words, known.objects, grid)
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
        np.testing.assert_allclose(actual[number], expected, rtol=1e-12)


ASKED = Question(0, "what", "a", kind="one", boxes=((0, 0, 2, 3),))
"""In an image of 4 x 6 pixels and 2 x 3 places of 2 x 2."""


def test_a_place_stands_for_its_pixels() -> None:
    np.testing.assert_allclose(shares(covered(ASKED, (4, 6)), (2, 3)), [1, 0.5, 0, 0, 0, 0])
    both = ASKED._replace(boxes=(*ASKED.boxes, (0, 1, 3, 1)))
    np.testing.assert_allclose(shares(covered(both, (4, 6)), (2, 3)), [1, 0.5, 0, 0.25, 0, 0])
    odd = ASKED._replace(boxes=((0, 0, 1, 1),))
    np.testing.assert_allclose(shares(covered(odd, (5, 5)), (2, 2)).sum(), 1 / 9)


@pytest.mark.quick
def test_attention_in_the_boxes_by_kind() -> None:
    """The same weight everywhere gives the chance; all on the second place half."""
    looks = {"even": np.full((3, 6), 1 / 6), "second": np.tile([0.0, 1, 0, 0, 0, 0], (3, 1))}
    other = ASKED._replace(kind="two", boxes=((2, 4, 2, 2),))
    nothing = ASKED._replace(boxes=())
    actual = localised(looks, [ASKED, other, nothing], (2, 3), (4, 6, 3))
    assert actual["even"] == actual["chance"] == pytest.approx({"one": 6 / 24, "two": 4 / 24})
    assert actual["second"] == pytest.approx({"one": 0.5, "two": 0.0})
    assert localised(looks, [nothing] * 3, (2, 3), (4, 6, 3)) == {}


def test_only_looks_of_the_question_at_the_image_count() -> None:
    weights = np.arange(16.0).reshape(1, 2, 2, 4)
    maps = {
        "hops": AttentionMap(weights, "hops", "image"),
        "read": AttentionMap(weights, "joined", "image"),
        "itself": AttentionMap(weights, "image", "image"),
        "words": AttentionMap(weights, "hops", "question"),
    }
    actual = of_questions(maps)
    assert set(actual) == {"hops", "read"}
    np.testing.assert_allclose(actual["hops"], [[6, 7, 8, 9]])
    np.testing.assert_allclose(actual["read"], [[4, 5, 6, 7]])
