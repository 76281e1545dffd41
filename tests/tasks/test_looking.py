"""Where a system looks beside where the answer is to be seen, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from attnlab.data.images.questions import Question
from attnlab.systems.protocol import AttentionMap
from attnlab.tasks.localisation import shares
from attnlab.tasks.looking import covered, localised, of_questions

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
    found = localised(looks, [ASKED, other, nothing], (2, 3), (4, 6, 3))
    assert found["even"] == found["chance"] == pytest.approx({"one": 6 / 24, "two": 4 / 24})
    assert found["second"] == pytest.approx({"one": 0.5, "two": 0.0})
    assert localised(looks, [nothing] * 3, (2, 3), (4, 6, 3)) == {}


def test_only_looks_of_the_question_at_the_image_count() -> None:
    weights = np.arange(16.0).reshape(1, 2, 2, 4)
    maps = {
        "hops": AttentionMap(weights, "hops", "image"),
        "read": AttentionMap(weights, "joined", "image"),
        "itself": AttentionMap(weights, "image", "image"),
        "words": AttentionMap(weights, "hops", "question"),
    }
    found = of_questions(maps)
    assert set(found) == {"hops", "read"}
    np.testing.assert_allclose(found["hops"], [[6, 7, 8, 9]])
    np.testing.assert_allclose(found["read"], [[4, 5, 6, 7]])
