"""Products of a group obey its axioms, and every answer is that of permuting things one by one."""

import itertools
from typing import Any

import pytest

from attnlab.data.diagnostics.states import StateTracking, products

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
