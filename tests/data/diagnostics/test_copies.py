"""Rows made of pairs, words among blanks and what followed the trigger have the answers of another
reading.
"""

from collections import Counter

import pytest

from attnlab.data.copying import Copying
from attnlab.data.diagnostics.copies import InARow, Induction, SelectiveCopying


def test_a_pair_in_a_row_asks_for_every_word_of_its_target_and_its_end() -> None:
    of = {"name": "copying", "examples": 20, "order": "reversed", "longest": 6}
    rows, pairs = InARow(of).asked("train"), Copying(20, order="reversed", longest=6).pairs("train")
    for row, (source, target) in zip(rows, pairs, strict=True):
        length = len(source.split())
        assert row.words == (*source.split(), "=", *target.split())
        message = [answer for answer in row.answers if answer]
        assert message == [*target.split(), "."] and row.answers[:length] == ("",) * length
        # each answer but the last is the next word: greedy generation would read the same
        assert tuple(message[:-1]) == row.words[length + 1 :]
        assert row.groups == (length,) * (length + 1)


@pytest.mark.parametrize("scattered", [True, False])
def test_words_are_said_again_in_their_order(scattered: bool) -> None:
    source = SelectiveCopying(100, test=10, blanks=9, words=3, scattered=scattered, tested=15)
    places = Counter[int]()
    for row in source.asked("train"):
        text, message = row.words[:12], [answer for answer in row.answers if answer]
        assert [word for word in text if word != "_"] == message == list(row.answers[12:])
        assert row.words[12:] == ("=",) * 3 and row.groups == (1, 2, 3)
        places.update(at for at, word in enumerate(text) if word != "_")
    assert set(places) == (set(range(12)) if scattered else {0, 1, 2})
    assert {len(row.words) for row in source.asked("test")} == {21}


def test_what_followed_the_trigger_is_the_answer() -> None:
    for row in Induction(examples=200, length=10, symbols=5).asked("train"):
        at = row.words.index("!")
        assert row.words[-1] == "!" and row.words.count("!") == 2
        assert row.answers == ("",) * 10 + (row.words[at + 1],)
        assert row.groups[0] / 2 < 10 - at <= row.groups[0]
