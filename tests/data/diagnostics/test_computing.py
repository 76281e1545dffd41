"""Products of a group obey its axioms, and every answer is that of permuting things one by one. Nested lists
have the values of an independent reader, within their limits; the baseline knows the first operator.
"""

import itertools
from typing import Any

import numpy as np
import pytest

from attnlab.data.asked import Row
from attnlab.data.diagnostics.computing import ListOps, StateTracking, products

SIZES = {("cyclic", 6): 6, ("symmetric", 3): 6, ("symmetric", 5): 120, ("alternating", 5): 60}


@pytest.mark.parametrize(("of", "order"), SIZES)
def test_a_group_is_one(of: Any, order: int) -> None:
    table = products(of, order)
    every = range(len(table))
    assert len(table) == SIZES[of, order]
    assert all(table[0][x] == table[x][0] == x and 0 in table[x] for x in every)
    for x, y, z in itertools.islice(itertools.product(every, repeat=3), 5000):
        assert table[table[x][y]][z] == table[x][table[y][z]]
    assert (of == "cyclic") == all(table[x][y] == table[y][x] for x in every for y in every)


def test_answers_are_what_things_look_like_after_all_permutations() -> None:
    every = list(itertools.permutations(range(4)))
    for row in StateTracking(of="symmetric", order=4, length=9, examples=50).asked("train"):
        things = list(range(4))
        for word, answer in zip(row.words, row.answers, strict=True):
            moved = every[int(word[1:])]
            things = [moved[thing] for thing in things]
            assert answer == f"e{every.index(tuple(things))}"
        assert row.groups == (1, 2, 4, 4, 8, 8, 8, 8, 16)


def test_parity_counts_ones_and_longer_texts_are_tested() -> None:
    source = StateTracking(examples=50, valid=5, test=5, length=12, tested=30)
    for row in source.asked("train"):
        ones = list(itertools.accumulate(word == "g1" for word in row.words))
        assert list(row.answers) == [f"e{count % 2}" for count in ones] and len(ones) == 12
    assert {len(row.words) for row in source.asked("test")} == {30}


def value(words: list[str]) -> int:
    """Reads a tree from the front of a list of words, which it takes away."""
    word = words.pop(0)
    if not word.startswith("["):
        return int(word)
    values = []
    while words[0] != "]":
        values.append(value(words))
    words.pop(0)
    assert len(values) >= 2
    if word == "[MED":
        return int(np.median(values))
    return {"[MIN": min, "[MAX": max, "[SM": lambda values: sum(values) % 10}[word](values)


def test_values_are_right_and_lengths_within_limits() -> None:
    rows = ListOps(examples=200, shortest=8, longest=40, depth=4).asked("train")
    for row in rows:
        words = list(row.words)
        assert str(value(words)) == row.answers[-1] and not words
        assert 8 <= len(row.words) <= 40 and not any(row.answers[:-1])
    expected = {*map(str, range(10)), "[MIN", "[MAX", "[MED", "[SM", "]"}
    assert {word for row in rows for word in row.words} == expected


def test_the_baseline_knows_the_first_operator() -> None:
    def row(operator: str, answer: str) -> Row:
        return Row((operator, "1", "2", "]"), ("", "", "", answer))

    rows = [row("[MAX", "9"), row("[MAX", "9"), row("[MAX", "2"), row("[SM", "3")]
    assert ListOps().guesses(rows) == {"operator in front": 3 / 4}
