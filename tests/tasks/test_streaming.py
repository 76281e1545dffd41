"""Showing a text while it is written and reading its beginning in pieces change nothing of what is
written; a text may end an answer.
"""

import itertools
from typing import Any

import numpy as np
import pytest

from attnlab.data.vocabulary import BOS, EOS, PAD
from attnlab.decoding.settings import Decoding
from attnlab.errors import UserError
from attnlab.tasks.decoders import continuing, ending
from tests.tasks.tiny_language import APART, drawn, load

LINES = ["ab", "c", "defgab"]
GREEDY = ["decoding.method=greedy", "decoding.max_ratio=0.0", "decoding.max_extra=12"]
SAMPLE = ["decoding.method=sample", *GREEDY[1:], "decoding.seed=3"]


full = pytest.mark.full


def shown(task: Any, params: Any, line: str, index: int) -> str:
    *_, last = task.partial_answers(params, line, index)
    return str(last)


@pytest.mark.parametrize("how", [GREEDY, pytest.param(SAMPLE, marks=full)])
def test_what_is_streamed_is_what_is_answered(how: list[str]) -> None:
    """Every line, with the draws of its own place; and texts only grow."""
    task = load(*APART, *how)
    params = drawn(task)
    params["out"]["bias"][EOS] = -50.0  # texts as long as they may be
    answers = [best[0].text for best in task.respond(params, LINES)]
    assert [shown(task, params, line, n) for n, line in enumerate(LINES)] == answers
    every = list(task.partial_answers(params, LINES[0], 0))
    assert len(every) > 3
    assert all(later.startswith(one) for one, later in itertools.pairwise(every))


def test_a_text_that_ends_answers() -> None:
    """The answer is what it was, up to the first of the texts; one in the beginning counts not."""
    task = load(*APART, *GREEDY)
    params = drawn(task)
    whole = [best[0].text for best in task.respond(params, LINES)]
    stop = whole[0][len(LINES[0]) + 2 :][:2]
    held = load(*APART, *GREEDY, f"decoding.stop=('{stop}','zz')")
    for line, before, (best,) in zip(LINES, whole, held.respond(params, LINES), strict=True):
        place = before.find(stop, len(line))
        assert best.text == (before if place < 0 else before[:place])
    assert any(x[0].text != one for x, one in zip(held.respond(params, LINES), whole, strict=True))


@pytest.mark.parametrize("method", ["greedy", pytest.param("sample", marks=full)])
def test_it_stops_there(method: str) -> None:
    """Not at the limit, and each text at a token of its own."""
    task = load(*APART)
    params = drawn(task)
    settings = Decoding(method=method, max_ratio=0.0, max_extra=200, min_length=200, stop=("x",))
    looks: list[int] = []

    def ended(ids: np.ndarray) -> bool:
        looks.append(len(ids))
        return len(looks) == 1 or len(ids) >= 20  # the first text earlier than the second

    source = {"source": np.array([[BOS, 4], [BOS, PAD]], np.int32)}
    actual = continuing(task.system, settings, ended=ended)(params, [(np.array([0, 1]), source)])
    assert [len(best[0].tokens) for best in actual] == [1, 20]
    assert looks == [1, *range(1, 21)]
    assert ending(settings, lambda ids: "ax")(np.zeros(1)) and ending(Decoding(), str) is None


def test_what_is_refused() -> None:
    task = load(*APART, "decoding.method=beam")
    with pytest.raises(UserError, match="decoding.method to 'greedy' or 'sample'"):
        next(iter(task.partial_answers(drawn(task), "ab", 0)))
