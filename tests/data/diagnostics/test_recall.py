"""Every answer of a recall task is that of an independent reading, at the distances and places that
are asked for.
"""

import math
from collections import Counter
from typing import Any

import pytest

from attnlab.data import SPLITS
from attnlab.data.asked import Row
from attnlab.data.diagnostics.recall import (
    Induction,
    MultiQueryRecall,
    Needle,
    SelectiveCopying,
    SingleQueryRecall,
)


def questions(row: Row) -> dict[int, str]:
    """Where a text asks, and for what."""
    return {at: answer for at, answer in enumerate(row.answers) if answer}


@pytest.mark.quick
@pytest.mark.parametrize("noise", [False, True])
def test_every_key_is_asked_for_once_and_its_value_is_the_answer(noise: bool) -> None:
    source = MultiQueryRecall(examples=400, length=32, pairs=5, symbols=40, noise=noise)
    for row in source.asked("train"):
        words = row.words
        pairs = {words[at]: at for at in range(0, 10, 2)}
        assert len(words) == 32 and len(pairs) == 5 and len(set(words[1:10:2])) == 5
        asked = questions(row)
        assert {words[at] for at in asked} == set(pairs) and len(asked) == 5
        for (at, answer), distance in zip(asked.items(), row.groups, strict=True):
            assert at >= 10 and at % 2 == 0 and answer == words[pairs[words[at]] + 1]
            assert distance / 2 < at - pairs[words[at]] <= distance
        others = [word for at, word in enumerate(words[10:], 10) if at not in asked]
        assert not {*others} & {*pairs} if noise else {*others} == {"_"}


def test_places_of_questions_follow_the_power_law() -> None:
    """The first of one query's places, against p(r) = a r^(a - 1) / sum, within four standard errors."""
    count, power, space = 8000, 0.3, 14
    source = MultiQueryRecall(examples=count, length=30, pairs=1, symbols=400, power=power)
    actual = Counter((next(iter(questions(row))) - 2) // 2 for row in source.asked("train"))
    weights = [place ** (power - 1) for place in range(1, space + 1)]
    for place, weight in enumerate(weights):
        share = weight / sum(weights)
        error = math.sqrt(share * (1 - share) / count)
        assert abs(actual[place] / count - share) < 4 * error


def test_longer_texts_of_the_test_split() -> None:
    source = MultiQueryRecall(5, test=5, length=16, pairs=2, tested_length=40, tested_pairs=8)
    assert {len(row.words) for row in source.asked("valid")} == {16}
    assert {(len(row.words), len(questions(row))) for row in source.asked("test")} == {(40, 8)}
    assert source.guesses(source.asked("test")) == {"a value of the text": 1 / 8}


def test_each_text_draws_its_number_of_pairs() -> None:
    """Of 2, 4, 8 each a third, within four standard errors; in the test split up to 16 too. Groups
    by pairs are these numbers.
    """
    sizes = {"examples": 900, "test": 200, "length": 64, "symbols": 40, "pairs": 8, "fewest": 2}
    source = MultiQueryRecall(**sizes, tested_pairs=16, by="pairs")  # type: ignore[arg-type]
    rows = source.asked("train")
    actual = Counter(len(questions(row)) for row in rows)
    assert set(actual) == {2, 4, 8} and source.group == "pairs"
    assert all(abs(count - 300) < 4 * math.sqrt(900 * 2 / 9) for count in actual.values())
    assert all(set(row.groups) == {len(questions(row))} for row in rows)
    assert {len(questions(row)) for row in source.asked("test")} == {2, 4, 8, 16}


@pytest.mark.parametrize("distance", [-1, 0, 3])
def test_the_last_pair_of_a_key_answers_a_single_question(distance: int) -> None:
    source = SingleQueryRecall(examples=300, pairs=7, keys=9, distance=distance, test=20, tested=9)
    for split in SPLITS:
        for row in source.asked(split):
            *pairs, ask, key = row.words
            assert len(pairs) == (18 if split == "test" else 14) and ask == "?"
            places = [at for at in range(0, len(pairs), 2) if pairs[at] == key]
            assert questions(row) == {len(row.words) - 1: pairs[places[-1] + 1]}
            assert row.groups == (len(row.words) - 1 - places[-1],)
            if distance >= 0:
                assert row.groups == (2 * distance + 3,)


@pytest.mark.parametrize("hay", ["blanks", "pairs"])
def test_the_needle_is_where_its_key_is(hay: Any) -> None:
    rows = Needle(examples=300, length=20, hay=hay, keys=30).asked("train")
    places = Counter[int]()
    for row in rows:
        *text, _, key = row.words
        assert text.count(key) == 1 and questions(row) == {21: text[text.index(key) + 1]}
        assert (text.count("_") == 18) == (hay == "blanks")
        places[text.index(key)] += 1
        assert row.groups[0] / 2 < 21 - text.index(key) <= row.groups[0]
    assert set(places) == set(range(0, 20, 2))


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
